"""Files of named arrays, in the safetensors format.

    8 bytes   length of the header, little-endian
    header    JSON: {name: {"dtype", "shape", "data_offsets": [begin, end]}}
              and "__metadata__": {name: text}
    bytes     the arrays, row-major, little-endian

An array here is (dtype name, shape, bytes-like), so that types which NumPy
lacks (BF16) pass through. Other programs can read the files.
"""

from __future__ import annotations

import io
import json
import math
from typing import Any, BinaryIO, Mapping, NamedTuple

from .errors import Error

_HEADER_BYTES_MAX = 100 << 20
# Bytes of an element.
ITEM_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1,
              "U16": 2, "I16": 2, "F16": 2, "BF16": 2, "U32": 4, "I32": 4,
              "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8}


class Array(NamedTuple):
    """An array without its meaning: `data` has the elements' bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: Any


def write(file: BinaryIO, arrays: Mapping[str, Array],
          metadata: Mapping[str, str] | None = None) -> None:
    """Writes the arrays in the order of the mapping."""
    header: dict[str, Any] = {}
    if metadata:
        header["__metadata__"] = dict(metadata)
    end = 0
    for name, array in arrays.items():
        begin, end = end, end + memoryview(array.data).nbytes
        header[name] = {"dtype": array.dtype, "shape": list(array.shape),
                        "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    for array in arrays.values():
        file.write(array.data)


def read(file: io.BufferedIOBase) -> tuple[dict[str, Array], dict[str, str]]:
    """Reads all arrays, each into its own writable memory, and the metadata.

    Error DAMAGED_FILE: it is not such a file, or it is cut short.
    """
    try:
        header = _read_header(file)
        metadata = header.pop("__metadata__", {})
        arrays = {}
        for name, entry in sorted(header.items(),
                                  key=lambda item: item[1]["data_offsets"]):
            shape = tuple(entry["shape"])
            begin, end = entry["data_offsets"]
            if end - begin != math.prod(shape) * ITEM_BYTES[entry["dtype"]]:
                raise ValueError("%s has %d bytes" % (name, end - begin))
            arrays[name] = Array(entry["dtype"], shape,
                                 _exactly(file, end - begin))
        return arrays, metadata
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(file, error) from error


def read_metadata(file: io.BufferedIOBase) -> dict[str, str]:
    """Reads the metadata only. Error DAMAGED_FILE: it is not such a file."""
    try:
        return dict(_read_header(file).get("__metadata__", {}))
    except (ValueError, TypeError, AttributeError) as error:
        raise _damaged(file, error) from error


def _read_header(file: io.BufferedIOBase) -> Any:
    length = int.from_bytes(_exactly(file, 8), "little")
    if length > _HEADER_BYTES_MAX:
        raise ValueError("a header of %d bytes" % length)
    return json.loads(_exactly(file, length).decode("utf-8"))


def _damaged(file: Any, error: Exception) -> Error:
    return Error("%s is damaged: %s" % (getattr(file, "name", "the file"),
                                        error),
                 reason="DAMAGED_FILE", code="DATA_LOSS")


def _exactly(file: io.BufferedIOBase, count: int) -> bytearray:
    data = bytearray(count)
    if file.readinto(data) != count:
        raise ValueError("it ends early")
    return data
