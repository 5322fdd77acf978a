"""The parameters of a torch module of which each rank has a part."""

from __future__ import annotations

import math
from typing import Any, Iterable, Mapping, NamedTuple

from . import _shards, _torch
from ._module import shared_tensors
from ._parameters import Parameters, check_layout
from ._ranks import Ranks
from ._regions import Regions
from ._shards import Box
from .errors import Error


class Holding(NamedTuple):
    """What a rank says of a tensor."""

    shape: tuple[int, ...]
    box: Box | None
    is_buffer: bool


class Part(NamedTuple):
    """A box of a tensor, and how its values travel.

    `readers` and `writers` are paths of ranks: each hands the values on to the
    next. A reader path ends, and a writer path begins, at a rank that shares
    the regions' memory. Ranks with that memory write their own boxes without
    a path.
    """

    name: str
    box: Box
    readers: tuple[int, ...]
    writers: tuple[int, ...]


def parts_of(name: str, index: int, holdings: Mapping[int, Holding],
             sharing: list[int]) -> list[Part]:
    """The parts of a tensor, the same on all ranks.

    Owners are spread: `index` is the tensor's place in the layout.

    Args:
      holdings: By rank.
      sharing: The ranks that share the regions' memory; not empty.
    """
    boxes: dict[Box, list[int]] = {}
    for rank, holding in sorted(holdings.items()):
        if holding.box is not None and _shards.element_count(holding.box):
            boxes.setdefault(holding.box, []).append(rank)
    parts = []
    for box, ranks in boxes.items():
        near = [rank for rank in ranks if rank in sharing]
        # Replicas of a buffer may differ: the first one counts.
        spread = 0 if holdings[ranks[0]].is_buffer else index
        owner = (near or ranks)[spread % len(near or ranks)]
        readers = ((owner,) if near else
                   (owner, sharing[owner % len(sharing)]))
        parts.append(Part(name, box, readers, (readers[-1], *(
            rank for rank in ranks if rank not in sharing))))
    return parts


def _check_cover(name: str, shape: tuple[int, ...], parts: list[Part]) -> None:
    found = sum(_shards.element_count(part.box) for part in parts)
    if found != math.prod(shape):
        raise _other_layout("the ranks together have %d of the %d elements of "
                            "%s" % (found, math.prod(shape), name))


def _other_layout(why: str) -> Error:
    return Error(why, reason="OTHER_LAYOUT", code="FAILED_PRECONDITION",
                 hint="Shard one model over the ranks of this island.")


class MeshParameters(Parameters):
    """Parameters over the ranks of an island: replicas, DTensors, stages.

    A rank with the regions' memory copies its own box of each tensor there and
    back; other ranks send and receive theirs, a tensor at a time, through the
    trainer's process group. So no rank holds another's part.
    """

    def __init__(self, model: Any, buffers: str, names: Any, ranks: Ranks):
        _torch.reshard(model)
        self._model = model
        self._ranks = ranks
        self._tensors = shared_tensors(model, buffers, names)
        self._parts: list[list[Part]] = []  # Of each fragment.

    def bind(self, regions: Regions) -> None:
        """Every rank calls it: together they must have the run's layout."""
        self._is_near = regions.is_shared
        torch = _torch.loaded()
        kind = torch.distributed.get_backend_config()
        # Through which values travel between nodes.
        self._device = ("cpu" if "cpu:" in kind else
                        torch.device(kind.split(":")[0]))
        told = self._ranks.together(lambda: (regions.is_shared, {
            name: Holding(tuple(tensor.shape),
                          _shards.box_of(tensor, name),
                          not isinstance(tensor, torch.nn.Parameter))
            for name, tensor in self._tensors.items()}))
        sharing = [rank for rank, (shared, _) in enumerate(told) if shared]
        self._views = regions.all_views()
        shapes: dict[str, tuple[int, ...]] = {}
        for rank, (_, holdings) in enumerate(told):
            for name, holding in holdings.items():
                if shapes.setdefault(name, holding.shape) != holding.shape:
                    raise _other_layout("rank %d has %s with the shape %s; a "
                                        "lower rank has %s" % (
                                            rank, name, list(holding.shape),
                                            list(shapes[name])))
        check_layout(shapes, self._views)
        self._mine = {name: holding.box for name, holding in
                      told[self._ranks.rank][1].items()}
        index = 0
        for fragment in range(regions.fragment_count):
            self._parts.append([])
            for name in regions.views(fragment):
                parts = parts_of(name, index, {
                    rank: of[name] for rank, (_, of) in enumerate(told)
                    if name in of}, sharing)
                _check_cover(name, shapes[name], parts)
                self._parts[-1] += parts
                index += 1

    def read(self, fragments: Iterable[int]) -> None:
        for part in self._each(fragments):
            first, last = part.readers[0], part.readers[-1]
            if first == last == self._ranks.rank:
                self._view(part).copy_(self._local(part))
            elif first == self._ranks.rank:
                self._send(self._local(part), last)
            elif last == self._ranks.rank:
                self._view(part).copy_(self._receive(part, first))

    def write(self, fragments: Iterable[int]) -> None:
        _torch.reshard(self._model)
        for part in self._each(fragments):
            path, rank = part.writers, self._ranks.rank
            if self._is_near and self._mine.get(part.name) == part.box:
                self._local(part).copy_(self._view(part))
            if rank not in path:
                continue
            place = path.index(rank)
            if place:
                values = self._receive(part, path[place - 1])
                self._local(part).copy_(values)
            elif len(path) > 1:
                values = self._view(part)
            if place + 1 < len(path):
                self._send(values, path[place + 1])

    def shards(self) -> Mapping[str, Any]:
        return {_shards.describe(tensor): tensor
                for tensor in self._tensors.values()
                if _shards.is_sharded(tensor)}

    def _each(self, fragments: Iterable[int]) -> Iterable[Part]:
        for fragment in fragments:
            yield from self._parts[fragment]

    def _local(self, part: Part) -> Any:
        """What this rank has of the part, in its tensor's memory."""
        return _shards.local(self._tensors[part.name])

    def _view(self, part: Part) -> Any:
        """The part in the region."""
        view = _torch.loaded().from_numpy(self._views[part.name])
        # A scalar has the shape [1] in a region.
        box = tuple(slice(*of) for of in part.box)
        return view[box] if box else view.reshape(())

    def _send(self, values: Any, rank: int) -> None:
        torch = _torch.loaded()
        torch.distributed.send(
            values.to(self._device, torch.float32).contiguous(), rank)

    def _receive(self, part: Part, rank: int) -> Any:
        torch = _torch.loaded()
        values = torch.empty(_shards.shape_of(part.box), dtype=torch.float32,
                             device=self._device)
        torch.distributed.recv(values, rank)
        return values
