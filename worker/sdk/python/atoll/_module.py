"""The parameters of a torch module."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping

from . import _shards, _torch
from ._parameters import Parameters, check_layout
from ._regions import Regions
from .errors import Error

BUFFERS = ("local", "average")


def layout_name(name: str) -> str:
    """A parameter's name without what wrappers of the model prepend.

    They are those of torch.compile, activation checkpoints and DDP.
    """
    for wrapper in ("_orig_mod.", "_checkpoint_wrapped_module."):
        name = name.replace(wrapper, "")
    return name.removeprefix("module.")


def shared_tensors(model: Any, buffers: str,
                   names: Callable[[str], str] | Mapping[str, str] | None =
                   None) -> dict[str, Any]:
    """The tensors of `model` that islands average, by their layout's name.

    Trained parameters in the order of named_parameters(): tied ones once,
    under their first name; frozen ones are left out. With "average" also the
    buffers of floating-point numbers.

    Args:
      names: The layout's name of each name of the model that differs.
    """
    if buffers not in BUFFERS:
        raise Error("buffers is %r; give one of %s" % (buffers, BUFFERS),
                    code="INVALID_ARGUMENT")
    rename = names if callable(names) else (
        lambda name: (names or {}).get(name, name))
    tensors: dict[str, Any] = {}
    found = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    if buffers == "average":
        found += [(n, b) for n, b in model.named_buffers()
                  if b.is_floating_point()]
    for name, tensor in found:
        short = rename(layout_name(name))
        if short in tensors:
            raise Error("two tensors have the name %s" % short,
                        code="INVALID_ARGUMENT")
        _torch.refuse_unusual(_shards.local(tensor), name)
        if not tensor.is_floating_point():
            raise Error("%s is not of floating-point numbers" % name,
                        code="INVALID_ARGUMENT")
        tensors[short] = tensor
    return tensors


class ModuleParameters(Parameters):
    """Parameters of a module.

    A float32 parameter on the CPU becomes a view of its region: reading and
    writing it copies nothing. All others are copied: a device's, and those of
    another dtype, which are rounded when they are written.
    """

    def __init__(self, model: Any, buffers: str, names: Any):
        self._tensors = shared_tensors(model, buffers, names)
        self._copied: dict[str, tuple[Any, Any]] = {}  # Tensor, its region's.
        self.arrays: dict[str, Any] = {}

    def bind(self, regions: Regions) -> None:
        torch = _torch.loaded()
        views = regions.all_views()
        check_layout({name: tuple(tensor.shape)
                      for name, tensor in self._tensors.items()}, views)
        self._regions = regions
        for name, tensor in self._tensors.items():
            of_region = torch.from_numpy(views[name]).reshape(tensor.shape)
            if (tensor.dtype == torch.float32 and tensor.device.type == "cpu"
                    and tensor.is_contiguous()):
                tensor.data = of_region
            else:
                self._copied[name] = (tensor, of_region)

    def _each_copied(self, fragments: Iterable[int]):
        for fragment in fragments:
            for name in self._regions.views(fragment):
                if name in self._copied:
                    yield self._copied[name]

    def read(self, fragments: Iterable[int]) -> None:
        for tensor, of_region in self._each_copied(fragments):
            of_region.copy_(tensor.detach())

    def write(self, fragments: Iterable[int]) -> None:
        for tensor, of_region in self._each_copied(fragments):
            tensor.data.copy_(of_region)


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
