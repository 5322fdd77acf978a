"""The parameters of a torch module."""

from __future__ import annotations

from typing import Any, Callable, Container, Iterable, Mapping

from . import _shards, _torch
from ._parameters import Parameters, check_layout
from ._regions import Regions
from .errors import Error

BUFFERS = ("local", "average")
Names = Callable[[str], str] | Mapping[str, str] | None


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
    return names(name) if callable(names) else (names or {}).get(name, name)


def shared_tensors(model: Any, buffers: str, names: Names = None,
                   kept: Container[str] = (),
                   may_be_meta: bool = False) -> dict[str, Any]:
    """The tensors of `model` that islands average, by their layout's name.

    Trained parameters in the order of named_parameters(): tied ones once,
    under their first name; frozen ones are left out. With "average" also the
    buffers of floating-point numbers.

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
        found += [(n, b) for n, b in model.named_buffers()
                  if b.is_floating_point()]
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


class SharedTensors:
    """The tensors of a module that islands average, found anew each time.

    A program may replace a parameter, or its memory, device or dtype.
    """

    def __init__(self, model: Any, buffers: str, names: Names):
        self._model = model
        self._buffers = buffers
        self._names = names
        self._shapes = {name: tensor.shape for name, tensor in
                        shared_tensors(model, buffers, names).items()}

    def now(self) -> dict[str, Any]:
        """The tensors, by the layout's name.

        Error PARAMETER_MOVED: they are not those of the constructor.
        """
        tensors = shared_tensors(self._model, self._buffers, self._names,
                                 self._shapes)
        for name in [*self._shapes, *tensors]:
            if name not in tensors:
                raise moved(name, "is no longer in the model")
            if name not in self._shapes:
                raise moved(name, "was not trained when the island was made")
            if tensors[name].shape != self._shapes[name]:
                raise moved(name, "has another shape than when the island was "
                            "made")
        return tensors


def moved(name: str, how: str) -> Error:
    return Error("%s %s" % (name, how), reason="PARAMETER_MOVED",
                 code="FAILED_PRECONDITION",
                 hint="Change the model first, then make the optimizer and the "
                 "Island.")


class ModuleParameters(Parameters):
    """Parameters of a module, copied at each read and write."""

    arrays: Mapping[str, Any] = {}

    def __init__(self, model: Any, buffers: str, names: Names):
        self._tensors = SharedTensors(model, buffers, names)

    def bind(self, regions: Regions) -> None:
        check_layout({name: tuple(tensor.shape)
                      for name, tensor in self._tensors.now().items()},
                     regions.all_views())
        self._regions = regions

    def _each(self, fragments: Iterable[int]) -> Iterable[tuple[Any, Any]]:
        """The tensors of the fragments, each with its region's."""
        tensors = self._tensors.now()
        for fragment in fragments:
            for name, view in self._regions.views(fragment).items():
                tensor = _shards.local(tensors[name])
                yield tensor, _torch.loaded().from_numpy(view).reshape(
                    tensor.shape)

    def read(self, fragments: Iterable[int]) -> None:
        for tensor, of_region in self._each(fragments):
            of_region.copy_(tensor)

    def write(self, fragments: Iterable[int]) -> None:
        for tensor, of_region in self._each(fragments):
            tensor.copy_(of_region)


class LocalBuffers:
    """The buffers that are not shared, as a part of the trainer's state."""

    def __init__(self, model: Any, buffers: str):
        self._model = model
        self._is_average = buffers == "average"

    def _buffers(self) -> dict[str, Any]:
        return {name: buffer for name, buffer in self._model.named_buffers()
                if not (self._is_average and buffer.is_floating_point())}

    def state_dict(self) -> dict[str, Any]:
        return self._buffers()

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        for name, buffer in self._buffers().items():
            buffer.data.copy_(saved[name])
