"""A state as a file holds it: a tree of plain values, and arrays apart.

Pure. The values are those that JSON has, and tuples, bytes, dictionaries with
other keys than text, OrderedDict, Counter, NumPy arrays and scalars, torch
tensors, and of a DTensor what this rank holds. Nothing is ever pickled, so that
reading a file runs no code.

In JSON a value that JSON lacks is a list [tag, ...], and a list is
["list", ...].
"""

from __future__ import annotations

import base64
import collections
import math
from typing import Any, Mapping

import numpy as np

from . import _shards, _torch
from ._safetensors import Array
from .errors import Error

_DTYPES = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16",
           "int16": "I16", "float16": "F16", "uint32": "U32", "int32": "I32",
           "float32": "F32", "uint64": "U64", "int64": "I64", "float64": "F64"}
_NUMPY = {name: np.dtype(dtype) for dtype, name in _DTYPES.items()}
_MAPS = {"dict": dict, "odict": collections.OrderedDict,
         "counter": collections.Counter}


def flatten(value: Any, copies: bool = True
            ) -> tuple[Any, dict[str, Array]]:
    """The tree as JSON, and its arrays by number.

    The arrays are copies. Without `copies` they may share memory with `value`.

    Error UNSUPPORTED_STATE: it holds a value of another type; the message says
    where.
    """
    arrays: dict[str, Array] = {}
    return _flatten(value, arrays, copies, "state"), arrays


def _flatten(value: Any, arrays: dict[str, Array], copies: bool,
             where: str) -> Any:
    if value is None or type(value) in (bool, str, int):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else ["float", repr(value)]
    if type(value) is bytes:
        return ["bytes", base64.b64encode(value).decode("ascii")]
    if isinstance(value, (list, tuple)):
        tag = "list" if isinstance(value, list) else "tuple"
        return [tag] + [_flatten(item, arrays, copies,
                                 "%s[%d]" % (where, index))
                        for index, item in enumerate(value)]
    if isinstance(value, dict):
        tag = next((t for t, of in _MAPS.items() if type(value) is of), "dict")
        return [tag] + [[_flatten(key, arrays, copies, where),
                         _flatten(item, arrays, copies,
                                  "%s[%r]" % (where, key))]
                        for key, item in value.items()]
    if isinstance(value, (np.ndarray, np.generic)):
        tag = "array" if isinstance(value, np.ndarray) else "scalar"
        return [tag, _keep(_from_numpy(np.asarray(value), copies, where),
                           arrays)]
    if _shards.is_sharded(value):
        return ["shard", _keep(_torch.to_array(_shards.local(value), where,
                                              copies), arrays),
                _shards.describe(value), list(value.shape),
                list(value.stride())]
    if _torch.is_tensor(value):
        return ["tensor", _keep(_torch.to_array(value, where, copies), arrays)]
    raise Error("%s is a %s, which cannot be saved" %
                (where, type(value).__name__), reason="UNSUPPORTED_STATE",
                code="INVALID_ARGUMENT",
                hint="Let state_dict() return numbers, texts, lists, "
                "dictionaries and arrays.")


def _keep(array: Array, arrays: dict[str, Array]) -> str:
    name = str(len(arrays))
    arrays[name] = array
    return name


def _from_numpy(array: np.ndarray, copies: bool, where: str) -> Array:
    dtype = _DTYPES.get(array.dtype.name)
    if dtype is None:
        raise Error("%s has the dtype %s, which cannot be saved" %
                    (where, array.dtype), reason="UNSUPPORTED_STATE",
                    code="INVALID_ARGUMENT")
    to = np.array if copies else np.asarray
    plain = to(array, dtype=array.dtype.newbyteorder("<"), order="C")
    return Array(dtype, array.shape, plain.reshape(-1).view(np.uint8).data)


def unflatten(tree: Any, arrays: dict[str, Array],
              shards: Mapping[str, Any] = {}) -> Any:
    """The value again. It owns the memory of `arrays`.

    Args:
      shards: {_shards.describe(DTensor): such a DTensor}.

    Error DAMAGED_FILE: `tree` is not of `flatten`. OTHER_SHARDS: it has a
    DTensor that is none of `shards`.
    """
    try:
        return _unflatten(tree, arrays, shards)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise Error("a state is damaged: %r" % error, reason="DAMAGED_FILE",
                    code="DATA_LOSS") from error


def _unflatten(tree: Any, arrays: dict[str, Array],
               shards: Mapping[str, Any]) -> Any:
    if not isinstance(tree, list):
        return tree
    tag, items = tree[0], tree[1:]
    if tag in ("list", "tuple"):
        values = [_unflatten(item, arrays, shards) for item in items]
        return values if tag == "list" else tuple(values)
    if tag in _MAPS:
        pairs = [(_unflatten(key, arrays, shards),
                  _unflatten(item, arrays, shards))
                 for key, item in items]
        return _MAPS[tag](dict(pairs) if tag == "counter" else pairs)
    if tag == "float":
        return float(items[0])
    if tag == "bytes":
        return base64.b64decode(items[0])
    array = arrays[items[0]]
    if tag == "tensor":
        return _torch.from_array(array)
    if tag == "shard":
        return _shards.from_local(_torch.from_array(array), *items[1:], shards)
    numbers = np.frombuffer(array.data, _NUMPY[array.dtype])
    numbers = numbers.reshape(array.shape)
    return numbers if tag == "array" else numbers[()]
