"""The parameters of a torch module."""

from __future__ import annotations

import re
from typing import (Any, Callable, Container, Iterable, Mapping, NamedTuple)

from . import _frozen, _shards, _torch
from ._parameters import Parameters, check_layout
from ._regions import Regions
from ._rounding import Values, moved
from .errors import Error

BUFFERS = ("local", "average")
_FOREIGN = re.compile(r"[^A-Za-z0-9._-]")  # No run has these in a name.
Names = Callable[[str], str] | Mapping[str, str] | None
Masters = Callable[[], Mapping[str, Any]] | Mapping[str, Any] | None


def layout_name(name: str) -> str:
    """A parameter's name without what wrappers of the model prepend.

    They are those of torch.compile, activation checkpoints and DDP.
    """
    for wrapper in ("_orig_mod.", "_checkpoint_wrapped_module."):
        name = name.replace(wrapper, "")
    return name.removeprefix("module.")


def _run_name(name: str, names: Names) -> str:
    """The run's name of a tensor that the model gives a name."""
    name = layout_name(name)
    name = names(name) if callable(names) else (names or {}).get(name, name)
    return _FOREIGN.sub(lambda found: "_u%x_" % ord(found[0]), name)


def _averaged(model: Any, names: Names, kept: Container[str]
              ) -> list[tuple[str, Any]]:
    """Buffers of floating-point numbers that a state_dict of the model has.

    `kept`: names in the layout of others, which older packages averaged too.
    """
    away = {id(getattr(module, name)) for module in model.modules()
            for name in module._non_persistent_buffers_set}
    return [(name, buffer) for name, buffer in model.named_buffers()
            if buffer.is_floating_point() and (
                id(buffer) not in away or _run_name(name, names) in kept)]


def shared_tensors(model: Any, buffers: str, names: Names = None,
                   kept: Container[str] = (),
                   may_be_meta: bool = False) -> dict[str, Any]:
    """The tensors of `model` that islands average, by their layout's name.

    Trained parameters in the order of named_parameters(): tied ones once,
    under their first name; frozen ones are left out. With "average" also the
    persistent buffers of floating-point numbers.

    Args:
      names: The layout's name of each name of the model that differs.
      kept: Names in the layout that are found also if they are frozen.
    """
    if buffers not in BUFFERS:
        raise Error("buffers is %r; give one of %s" % (buffers, BUFFERS),
                    code="INVALID_ARGUMENT")
    tensors: dict[str, Any] = {}
    found = [(n, p) for n, p in model.named_parameters()
             if p.requires_grad or _run_name(n, names) in kept]
    if buffers == "average":
        found += _averaged(model, names, kept)
    for name, tensor in found:
        short = _run_name(name, names)
        if short in tensors:
            raise Error("two tensors have the name %s" % short,
                        code="INVALID_ARGUMENT")
        _torch.refuse_unusual(_shards.local(tensor), name, may_be_meta)
        if not tensor.is_floating_point():
            raise Error("%s is not of floating-point numbers" % name,
                        code="INVALID_ARGUMENT")
        tensors[short] = tensor
    return tensors


class Shared(NamedTuple):
    """A tensor that islands average, and the one that the optimizer steps.

    They are one, but for mixed precision with masters in f32.

    Attributes:
      watched: Gets the tensor's values after a write; None: it is stepped.
    """

    tensor: Any
    master: Any
    watched: dict[str, Any] | None = None

    def write(self, values: Values, name: str, new: Any) -> None:
        values.write(name, _shards.local(self.master), new)
        if self.master is not self.tensor:
            _shards.local(self.tensor).copy_(new)
        if self.watched is not None:
            self.watched[name] = _on_host(self.tensor)


def _on_host(tensor: Any) -> Any:
    """A copy of this rank's values, in f32."""
    torch = _torch.loaded()
    return _shards.local(tensor).to("cpu", torch.float32, copy=True)


class SharedTensors:
    """The tensors of a module that islands average, found anew each time.

    A program may replace a parameter, or its memory, device or dtype.
    """

    def __init__(self, model: Any, buffers: str = "local", names: Names = None,
                 masters: Masters = None, optimizers: Iterable[Any] = ()):
        """Error MASTER_PARAMETERS: the optimizers step other tensors only."""
        self._model = model
        self._buffers = buffers
        self._names = names
        self._masters = masters
        self._optimizers = list(optimizers)
        self._stepped: set[str] = set()
        self._watched: dict[str, Any] = {}  # As in Shared.
        tensors = self._find()
        self._shapes = {name: tensor.shape for name, tensor in tensors.items()}
        self.now()
        if self._optimizers and masters is None and tensors and (
                not self._stepped):
            raise _has_masters("no optimizer of `state` steps a parameter of "
                               "the model")

    def fit(self, layout: Container[str]) -> None:
        """Adds buffers that only a run of an older package averages."""
        if self._buffers == "average":
            self._shapes.update(
                (_run_name(name, self._names), buffer.shape)
                for name, buffer in _averaged(self._model, self._names,
                                              layout))

    def _find(self, kept: Container[str] = ()) -> dict[str, Any]:
        if _torch.has_ranks():
            _torch.reshard(self._model)
        return shared_tensors(self._model, self._buffers, self._names, kept)

    def now(self) -> dict[str, Shared]:
        """The tensors, by the layout's name.

        Error PARAMETER_MOVED: they are not those of the constructor.
        MASTER_PARAMETERS: an optimizer steps a copy in f32 instead.
        """
        tensors = self._find(self._shapes)
        for name in [*self._shapes, *tensors]:
            if name not in tensors:
                raise moved(name, "is no longer in the model")
            if name not in self._shapes:
                raise moved(name, "was not trained when the island was made")
            if tensors[name].shape != self._shapes[name]:
                raise moved(name, "has another shape than when the island was "
                            "made")
        found = {name: Shared(tensor, tensor)
                 for name, tensor in tensors.items()}
        masters = self._masters() if callable(self._masters) else self._masters
        for own_name, master in (masters or {}).items():
            name = _run_name(own_name, self._names)
            if name not in found or (_shards.local(master).shape !=
                                     _shards.local(tensors[name]).shape):
                raise Error("parameters has %s, of the shape %s, which is no "
                            "parameter of the model" %
                            (own_name, list(master.shape)),
                            code="INVALID_ARGUMENT")
            found[name] = Shared(tensors[name], master)
        self._check_optimizers(found, {_run_name(name, self._names)
                                       for name in masters or ()})
        return found

    def frozen(self) -> dict[str, str]:
        """As Parameters; collective for DTensors."""
        found = {}
        for own_name, parameter in self._model.named_parameters():
            name = _run_name(own_name, self._names)
            if name not in self._shapes:
                digest = _frozen.digest_of(name, parameter)
                if digest is not None:
                    found[name] = digest
        return found

    def are_finite(self) -> bool:
        """As Parameters."""
        return all(_shards.local(of.master).isfinite().all()
                   for of in self.now().values())

    def _check_optimizers(self, found: dict[str, Shared],
                          given: Container[str]) -> None:
        """`given`: the names of tensors whose masters are known."""
        states = {id(parameter): getattr(optimizer, "state", {}).get(parameter)
                  for optimizer in self._optimizers
                  for group in optimizer.param_groups
                  for parameter in group["params"]}
        stepped = {name for name, of in found.items()
                   if id(of.master) in states}
        for name in sorted(self._stepped - stepped):
            raise moved(name, "is another tensor than the optimizer steps")
        for name in stepped:
            if any("master" in str(key)
                   for key in states[id(found[name].master)] or ()):
                raise _has_masters("the optimizer steps a copy of " + name)
        self._stepped = stepped
        known = {id(of.master) for of in found.values()}.union(
            id(parameter) for _, parameter in self._model.named_parameters())
        before, self._watched = self._watched, {}
        if known.issuperset(states):
            return
        # The other tensors may be masters of parameters that move unstepped.
        for name, of in found.items():
            if name in stepped or name in given or not of.tensor.requires_grad:
                continue
            if name in before:
                self._watched[name] = before[name]
                if not before[name].equal(_on_host(of.tensor)):
                    raise _has_masters("%s has changed, no optimizer of "
                                       "`state` steps it, and one steps "
                                       "tensors that are not the model's" %
                                       name)
            found[name] = of._replace(watched=self._watched)


def _has_masters(why: str) -> Error:
    return Error(why, reason="MASTER_PARAMETERS", code="FAILED_PRECONDITION",
                 hint="Give `parameters` the tensors that it steps instead "
                 "of the model's.")


class ModuleParameters(Parameters):
    """Parameters of a module, copied at each read and write."""

    arrays: Mapping[str, Any] = {}

    def __init__(self, tensors: SharedTensors):
        self._tensors = tensors
        self._values = Values()

    def bind(self, regions: Regions) -> None:
        views = regions.all_views()
        self._tensors.fit(views)
        check_layout({name: tuple(of.tensor.shape)
                      for name, of in self._tensors.now().items()}, views)
        self._regions = regions

    def _each(self, fragments: Iterable[int]
              ) -> Iterable[tuple[str, Shared, Any]]:
        """The tensors of the fragments, each with its region's."""
        tensors = self._tensors.now()
        for fragment in fragments:
            for name, view in self._regions.views(fragment).items():
                of = tensors[name]
                yield name, of, _torch.loaded().from_numpy(view).reshape(
                    of.tensor.shape)

    def read(self, fragments: Iterable[int]) -> None:
        for name, of, of_region in self._each(fragments):
            of_region.copy_(self._values.read(name, _shards.local(of.master)))

    def write(self, fragments: Iterable[int]) -> None:
        for name, of, of_region in self._each(fragments):
            of.write(self._values, name, of_region)

    def are_finite(self) -> bool:
        return self._tensors.are_finite()

    def frozen(self) -> Mapping[str, str]:
        return self._tensors.frozen()


class LocalBuffers:
    """Buffers that new runs do not average, a part of the trainer's state."""

    def __init__(self, model: Any, buffers: str):
        self._model = model
        self._is_average = buffers == "average"

    def _buffers(self) -> dict[str, Any]:
        averaged = {name for name, _ in _averaged(self._model, None, ())
                    } if self._is_average else ()
        return {name: buffer for name, buffer in self._model.named_buffers()
                if name not in averaged}

    def state_dict(self) -> dict[str, Any]:
        return self._buffers()

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        buffers = dict(self._model.named_buffers())
        local = self._buffers()
        for name, value in saved.items():  # An older package saved fewer.
            if name not in buffers:  # A forward pass makes it.
                self._add(name, value)
            elif name in local and local[name].shape == value.shape:
                local[name].data.copy_(value)
            elif name in local:
                local[name].data = value.to(local[name])

    def _add(self, name: str, value: Any) -> None:
        owner, _, last = name.rpartition(".")
        module = self._model.get_submodule(owner)
        of = next(self._model.parameters())
        module._buffers[last] = value.to(of.device)
