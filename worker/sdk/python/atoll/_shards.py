"""Which box of a tensor a rank holds: from a DTensor's mesh and placements.

A box is a range [begin, end) of each dimension.
"""

from __future__ import annotations

import math
from typing import Any, Iterable, Mapping

from . import _torch
from .errors import Error

Box = tuple[tuple[int, int], ...]


def is_sharded(tensor: Any) -> bool:
    """It is a DTensor: this rank may hold a part of it, or a replica."""
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "placements")


def local(tensor: Any) -> Any:
    """This rank's part of a tensor. It shares the tensor's memory."""
    return (tensor.to_local() if is_sharded(tensor) else tensor).detach()


def describe(tensor: Any) -> str:
    """A DTensor's mesh and placements. Equal texts name equal shards."""
    mesh = tensor.device_mesh
    return repr((mesh.device_type, mesh.mesh.tolist(),
                 [_placement(p) for p in tensor.placements]))


def _placement(placement: Any) -> tuple[Any, ...]:
    if placement.is_replicate():
        return ("replicate",)
    if placement.is_partial() or not hasattr(placement, "dim"):
        return ("other", repr(placement))
    return ("shard", placement.dim, getattr(placement, "split_factor", 1))


def chunk(size: int, splits: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Part `index` of `count` of the range [0, size), of that the next, ...

    As torch.chunk, each part but the last ones has ceil(size / count).
    """
    begin = 0
    for index, count in splits:
        part = -(-size // count)
        first = min(index * part, size)
        begin += first
        size = min(first + part, size) - first
    return begin, begin + size


def box_of(tensor: Any, name: str) -> Box | None:
    """This rank's box of a tensor; None: its mesh is without this rank.

    Error UNSUPPORTED_TENSOR: its placements are not of FSDP2, TP or both.
    """
    if not is_sharded(tensor):
        return tuple((0, size) for size in tensor.shape)
    mesh = tensor.device_mesh
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return None
    # Mesh dimensions that split a tensor's dimension, the first split first.
    orders: list[list[int]] = [[] for _ in tensor.shape]
    for dim in reversed(range(mesh.ndim)):
        kind, *of = _placement(tensor.placements[dim])
        if kind == "other":
            raise _unsupported(tensor, name)
        if kind == "shard":
            # Mesh dimensions split from left to right, except that a strided
            # one splits what `factor` shards of those on its right are.
            order, factor = orders[of[0]], of[1]
            place = next((n for n in range(len(order) + 1) if factor ==
                          math.prod(mesh.size(d) for d in order[:n])), None)
            if place is None:
                raise _unsupported(tensor, name)
            order.insert(place, dim)
    box = tuple(chunk(size, [(coordinate[d], mesh.size(d)) for d in order])
                for size, order in zip(tensor.shape, orders))
    if shape_of(box) != tuple(local(tensor).shape):
        raise _unsupported(tensor, name)
    return box


def shape_of(box: Box) -> tuple[int, ...]:
    return tuple(end - begin for begin, end in box)


def element_count(box: Box) -> int:
    return math.prod(shape_of(box))


def _unsupported(tensor: Any, name: str) -> Error:
    return Error("%s has the placements %s, of which this rank's part is not "
                 "known" % (name, tensor.placements),
                 reason="UNSUPPORTED_TENSOR", code="UNIMPLEMENTED",
                 hint="Shard parameters with fully_shard, parallelize_module "
                 "or both.")


def from_local(part: Any, described: str, shape: list[int], stride: list[int],
               like: Mapping[str, Any]) -> Any:
    """A DTensor again, from this rank's part of it.

    Error OTHER_SHARDS: `like` has no DTensor that `described` describes.
    """
    if described not in like:
        raise Error("the state has a tensor of the shards %s; the model has %s"
                    % (described, sorted(like)), reason="OTHER_SHARDS",
                    code="FAILED_PRECONDITION",
                    hint="Shard the model as before, or give another "
                    "work_dir.")
    example = like[described]
    torch = _torch.loaded()
    return torch.distributed.tensor.DTensor.from_local(
        part.to(local(example).device), example.device_mesh,
        example.placements, run_check=False, shape=torch.Size(shape),
        stride=tuple(stride))
