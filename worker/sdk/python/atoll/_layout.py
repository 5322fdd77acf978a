"""The layout of a run: which tensors, in which fragments, from what values."""

from __future__ import annotations

import math
from typing import Any, Collection, Mapping, NamedTuple

import numpy as np

from . import _torch
from ._module import shared_tensors
from .errors import Error

CLASSES = ("matrix", "embedding", "vector", "buffer")
INIT_KINDS = ("normal", "constant")


class Tensor(NamedTuple):
    """A tensor of the trainer, and what it is for.

    Attributes:
      values: Its elements as float32; None: it has none, on a meta device.
    """

    shape: tuple[int, ...]
    values: np.ndarray | None
    tensor_class: str


def of_arrays(arrays: Mapping[str, np.ndarray],
              buffers: str | Collection[str]) -> dict[str, Tensor]:
    """`buffers`: the names of arrays that no optimizer steps; "local": none."""
    if buffers == "local":
        buffers = ()
    if isinstance(buffers, str):
        raise Error("buffers is %r; with arrays give a list of their names" %
                    buffers, code="INVALID_ARGUMENT")
    unknown = sorted(set(buffers) - set(arrays))
    if unknown:
        raise Error("buffers names %s, which is no array" % unknown[0],
                    code="INVALID_ARGUMENT")
    return {name: Tensor(np.shape(array), np.asarray(array, dtype="<f4"),
                         "buffer" if name in buffers else
                         "matrix" if np.ndim(array) > 1 else "vector")
            for name, array in arrays.items()}


def of_module(model: Any, buffers: str, names: Any) -> dict[str, Tensor]:
    torch = _torch.loaded()
    embeddings = {id(m.weight) for m in model.modules()
                  if isinstance(m, torch.nn.Embedding)}
    averaged = {id(b) for b in model.buffers()}
    tensors = {}
    for name, tensor in shared_tensors(model, buffers, names,
                                       may_be_meta=True).items():
        _torch.refuse_unusual(tensor, name, may_be_meta=True)
        values = (None if tensor.is_meta else
                  tensor.detach().to("cpu", torch.float32).numpy())
        tensors[name] = Tensor(tuple(tensor.shape), values,
                               "buffer" if id(tensor) in averaged else
                               "embedding" if id(tensor) in embeddings else
                               "matrix" if tensor.ndim > 1 else "vector")
    return tensors


def _init(name: str, tensor: Tensor) -> tuple[str, float]:
    """The rule for version 0 of a tensor, without its random values.

    Two processes must get the same layout from two models of one shape. So a
    tensor whose elements are all equal keeps that value; another vector gets 0,
    and a matrix gets normal values with a variance of 1 / inputs. On a meta
    device a vector named weight gets 1, and one named bias 0.
    """
    if tensor.values is not None:
        first = float(tensor.values.flat[0])
        if (tensor.values == first).all() and math.isfinite(first):
            return "constant", first
    if len(tensor.shape) >= 2:
        return "normal", 1.0 / math.sqrt(math.prod(tensor.shape[1:]))
    if tensor.values is not None:
        return "constant", 0.0
    kinds = {"weight": 1.0, "bias": 0.0}
    kind = name.rpartition(".")[2]
    if kind not in kinds:
        raise Error("%s has no values on a meta device" % name,
                    code="INVALID_ARGUMENT",
                    hint='Give first_values={%r: ("constant", VALUE)}.' % name)
    return "constant", kinds[kind]


def tensors_json(tensors: Mapping[str, Tensor], fragment_count: int,
                 first_values: Mapping[str, tuple[str, float]] | None
                 ) -> dict[str, Any]:
    """The content of tensors.json, for `atoll run create --tensors`.

    Tensors go to fragments in their order, about equally many elements each.

    Error INVALID_ARGUMENT: there are fewer tensors than fragments, or
    `first_values` names a tensor that does not exist.
    """
    chosen = dict(first_values or {})
    if not 1 <= fragment_count <= len(tensors):
        raise Error("%d fragments of %d tensors" %
                    (fragment_count, len(tensors)), code="INVALID_ARGUMENT")
    unknown = sorted(set(chosen) - set(tensors))
    if unknown:
        raise Error("first_values names %s, which is no tensor" % unknown[0],
                    code="INVALID_ARGUMENT")
    total = sum(math.prod(t.shape) for t in tensors.values())
    rows, before, fragment = [], 0, 0
    for index, (name, tensor) in enumerate(tensors.items()):
        size = math.prod(tensor.shape)
        if size < 1:
            raise Error("%s is empty" % name, code="INVALID_ARGUMENT")
        middle = before + size / 2
        wanted = int(fragment_count * middle / total)
        # Advances by one fragment at most, so that no fragment is empty. Leaves
        # at least one tensor for each fragment that follows.
        if index:
            fragment = max(min(wanted, fragment + 1), fragment,
                           fragment_count - len(tensors) + index)
        before += size
        kind, value = chosen.get(name) or _init(name, tensor)
        if kind not in INIT_KINDS:
            raise Error("first_values[%r] is of the kind %r; give one of %s" %
                        (name, kind, INIT_KINDS), code="INVALID_ARGUMENT")
        rows.append({"name": name,
                     "shape": list(tensor.shape) or [1],
                     "fragment": fragment,
                     "class": tensor.tensor_class,
                     "init": {"kind": kind, "value": value}})
    return {"version": 1, "tensors": rows}
