"""The parameters of a torch module of which each rank has a part."""

from __future__ import annotations

import math
from typing import Any, Iterable, Mapping, NamedTuple

from . import _shards, _torch
from ._module import Shared, SharedTensors
from ._parameters import Parameters, check_layout
from ._ranks import Ranks
from ._regions import Regions
from ._rounding import Values, moved
from ._shards import Box
from .errors import Error


class Holding(NamedTuple):
    """A rank's part of a tensor. `box` is None if it has none."""

    shape: tuple[int, ...]
    box: Box | None
    is_buffer: bool


class Part(NamedTuple):
    """A box of a tensor, and the ranks through which its values travel.

    Attributes:
      readers: From the box's owner to a rank that has the regions' memory;
        these may be one rank.
      writers: From a rank that has the regions' memory, along all holders that
        lack it. The holders that have it copy for themselves.
    """

    name: str
    box: Box
    readers: tuple[int, ...]
    writers: tuple[int, ...]


def parts_of(name: str, index: int, holdings: Mapping[int, Holding],
             near: list[int]) -> list[Part]:
    """The parts of a tensor, in the same order on all ranks.

    Args:
      index: The tensor's place in the layout. It spreads the owners.
      holdings: By rank; not empty.
      near: The ranks that have the regions' memory; not empty.

    Error OTHER_LAYOUT: the parts do not make up the tensor.
    """
    boxes: dict[Box, list[int]] = {}
    for rank, holding in sorted(holdings.items()):
        if holding.box is not None and _shards.element_count(holding.box):
            boxes.setdefault(holding.box, []).append(rank)
    parts = []
    for box, holders in boxes.items():
        owners = [rank for rank in holders if rank in near] or holders
        # Replicas of a buffer may differ: the first one counts.
        owner = owners[0 if holdings[owners[0]].is_buffer else
                       index % len(owners)]
        readers = (owner,) if owner in near else (owner,
                                                  near[owner % len(near)])
        writers = readers[-1:] + tuple(r for r in holders if r not in near)
        parts.append(Part(name, box, readers, writers))
    found = sum(_shards.element_count(box) for box in boxes)
    size = math.prod(next(iter(holdings.values())).shape)
    if found != size:
        raise _other_layout("the ranks have %d of the %d elements of %s" %
                            (found, size, name))
    return parts


def _shapes(ranks: Iterable[Mapping[str, Holding]]
            ) -> dict[str, tuple[int, ...]]:
    """The tensors of all ranks. Error OTHER_LAYOUT: two have other shapes."""
    shapes: dict[str, tuple[int, ...]] = {}
    for holdings in ranks:
        for name, holding in holdings.items():
            if shapes.setdefault(name, holding.shape) != holding.shape:
                raise _other_layout("ranks have %s with the shapes %s and %s" %
                                    (name, list(shapes[name]),
                                     list(holding.shape)))
    return shapes


def _other_layout(why: str) -> Error:
    return Error(why, reason="OTHER_LAYOUT", code="FAILED_PRECONDITION",
                 hint="Split one model over the ranks of this island.")


class MeshParameters(Parameters):
    """Parameters over the ranks of an island: replicas, DTensors, stages.

    A rank on the exchange's node copies its own box of each tensor to and from
    the regions. Other ranks send and receive theirs, one after the other,
    through the trainer's process group. No rank holds another's part for
    longer than that.
    """

    def __init__(self, tensors: SharedTensors, ranks: Ranks):
        self._ranks = ranks
        self._tensors = tensors
        self._values = Values()
        # On which device values travel between nodes.
        backends = _torch.loaded().distributed.get_backend_config()
        self._device = "cpu" if "cpu:" in backends else backends.split(":")[0]

    def _holdings(self) -> dict[str, Holding]:
        parameter = _torch.loaded().nn.Parameter
        return {name: Holding(tuple(of.tensor.shape),
                              _shards.box_of(of.tensor, name),
                              not isinstance(of.tensor, parameter))
                for name, of in self._tensors.now().items()}

    def _now(self) -> dict[str, Shared]:
        """This rank's tensors.

        Error PARAMETER_MOVED: a part is another one than in `bind`.
        """
        found = self._tensors.now()
        for name, of in found.items():
            if _shards.box_of(of.tensor, name) != self._mine[name].box:
                raise moved(name, "is split in another way than before")
        return found

    def _is_mine(self, part: Part) -> bool:
        return (part.name in self._mine and
                self._mine[part.name].box == part.box)

    def bind(self, regions: Regions) -> None:
        """As Parameters: the ranks together must have the run's layout."""
        self._views = regions.all_views()
        self._tensors.fit(self._views)
        told = self._ranks.together(
            lambda: (regions.is_shared, self._holdings()))
        self._is_near, self._mine = told[self._ranks.rank]
        check_layout(_shapes(holdings for _, holdings in told), self._views)
        near = [rank for rank, (is_near, _) in enumerate(told) if is_near]
        parts = {name: parts_of(name, index, {
            rank: holdings[name] for rank, (_, holdings) in enumerate(told)
            if name in holdings}, near)
                 for index, name in enumerate(self._views)}
        self._parts = [[part for name in regions.views(fragment)
                        for part in parts[name]]
                       for fragment in range(regions.fragment_count)]

    def read(self, fragments: Iterable[int]) -> None:
        tensors = self._now()
        for part in self._each(fragments):
            first, last = part.readers[0], part.readers[-1]
            if self._is_mine(part):  # Every replica rounds in the same way.
                values = self._values.read(part.name, _shards.local(
                    tensors[part.name].master))
            if first == last == self._ranks.rank:
                self._view(part).copy_(values)
            elif first == self._ranks.rank:
                self._send(values, last)
            elif last == self._ranks.rank:
                self._view(part).copy_(self._receive(part, first))

    def write(self, fragments: Iterable[int]) -> None:
        tensors = self._now()
        for part in self._each(fragments):
            path, rank = part.writers, self._ranks.rank
            if self._is_near and self._is_mine(part):
                tensors[part.name].write(self._values, part.name,
                                         self._view(part))
            if rank not in path:
                continue
            place = path.index(rank)
            if place:
                values = self._receive(part, path[place - 1])
                tensors[part.name].write(self._values, part.name, values)
            elif len(path) > 1:
                values = self._view(part)
            if place + 1 < len(path):
                self._send(values, path[place + 1])

    def are_finite(self) -> bool:
        return self._tensors.are_finite()

    def frozen(self) -> Mapping[str, str]:
        return self._tensors.frozen()

    def shards(self) -> Mapping[str, Any]:
        return {_shards.describe(of.tensor): of.tensor
                for of in self._tensors.now().values()
                if _shards.is_sharded(of.tensor)}

    def _each(self, fragments: Iterable[int]) -> Iterable[Part]:
        for fragment in fragments:
            yield from self._parts[fragment]

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
