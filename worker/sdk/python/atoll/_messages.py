"""Packets of the trainer protocol: proto3 JSON of atoll.v1.TrainerMessage.

Pure. The table below repeats proto/atoll/v1/trainer.proto. A 64-bit number is
a string, a double that is not finite is "NaN", "Infinity" or "-Infinity". A
reader takes numbers and strings for both, and ignores fields that it does not
know.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import Any, Mapping

from .errors import Error

VERSION = 1                # The protocol's version.
PACKET_BYTES_MAX = 65536   # The longest packet, in bytes.
_TEXT_LENGTH_MAX = 1000    # The longest text that is sent, in characters.

# Fields of each message. A list of one type is a repeated field; a dict is a
# message; a tuple of one type is a map from texts. An optional field that is
# missing is None.
_TENSOR = {"name": "string", "shape": ["int64"], "element_offset": "int64"}
_STANDING = {"save_id": "string", "step_count": "int64", "step": "int64",
             "version": "int64", "lr_scale": "double", "data_shard": "int32",
             "data_position": "int64"}
_KINDS: dict[str, dict[str, Any]] = {
    "hello": {"version": "int32", "run_id": "string", "run_uid": "string",
              "island_id": "string", "program_version": "string",
              "fragment_count": "int32", "strict": "bool",
              "inner_step_count": "int64", "data_fingerprint": "string",
              "weight_unit": "optional string", "frozen_digest": "string",
              "has_state": "bool", "standings": [_STANDING],
              "run_epoch": "int64", "planned_step_count": "int64"},
    "join": {"version": "int32", "run_uid": "string", "island_id": "string",
             "slot": "int32", "data_shard": "int32",
             "data_shard_count": "int32"},
    "layout": {"fragment": "int32", "element_count": "int64",
               "tensors": [_TENSOR], "last": "bool"},
    "read": {"fragments": ["int32"]},
    "write": {"fragments": ["int32"]},
    "train": {"step": "int64", "step_count": "int64", "version": "int64",
              "lr_scale": "double", "data_shard": "int32",
              "data_position": "int64", "token_count": "int64",
              "loss": "double", "leave": "bool", "metrics": ("double",),
              "paused_seconds": "double", "notices": ["string"],
              "index_digest": "string", "kept_step_count": "int64"},
    "evaluate": {"version": "int64", "loss": "double", "token_count": "int64"},
    "save": {"save_id": "string"},
    "load": {"save_id": "string", "keep": "bool", "run_epoch": "int64",
             "restored_commit_seq": "int64"},
    "error": {"code": "string", "reason": "string", "message": "string",
              "hint": "string"},
    "progress": {"step_count": "int64", "token_count": "int64",
                 "loss": "double"},
    "interrupt": {},
    "end": {"complete": "bool", "message": "string", "notices": ["string"],
            "code": "string", "reason": "string", "version": "int64"},
}
_DEFAULTS = {"string": "", "optional string": None, "int32": 0, "int64": 0,
             "double": 0.0, "bool": False}
_BITS = {"int32": 31, "int64": 63}
_INTEGER = re.compile(r"-?[0-9]{1,20}\Z")


@dataclasses.dataclass(frozen=True)
class Message:
    """A packet that was received. `body` has every field of its kind."""

    seq: int
    kind: str
    body: dict[str, Any]


def unreadable(why: str) -> Error:
    return Error("the exchange sent a wrong message: %s" % why,
                 reason="UNREADABLE_MESSAGE", code="INVALID_ARGUMENT",
                 hint="Use the same release of atoll and of this package.")


def _to_int(value: Any, kind: str, name: str) -> int:
    if isinstance(value, str) and _INTEGER.match(value):
        value = int(value)
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise unreadable("%s is not a whole number: %.80r" % (name, value))
    if not -(1 << _BITS[kind]) <= value < 1 << _BITS[kind]:
        raise unreadable("%s is out of range: %.80r" % (name, value))
    return value


def _to_float(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise unreadable("%s is not a number: %.80r" % (name, value))
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise unreadable("%s is not a number: %.80r" % (name, value)) from None


def _read(value: Any, kind: Any, name: str) -> Any:
    if isinstance(kind, list):
        if value is None:
            return []
        if not isinstance(value, list):
            raise unreadable("%s is not a list" % name)
        return [_read(item, kind[0], name) for item in value]
    if isinstance(kind, tuple) and value is None:
        return {}
    if isinstance(kind, (dict, tuple)) and not isinstance(value, dict):
        raise unreadable("%s is not an object" % name)
    if isinstance(kind, tuple):
        return {key: _read(item, kind[0], name) for key, item in value.items()}
    if isinstance(kind, dict):
        return {field: _read(value.get(field), of, "%s.%s" % (name, field))
                for field, of in kind.items()}
    if value is None:  # JSON null, or missing.
        return _DEFAULTS[kind]
    if kind in _BITS:
        return _to_int(value, kind, name)
    if kind == "double":
        return _to_float(value, name)
    if not isinstance(value, bool if kind == "bool" else str):
        raise unreadable("%s is not a %s: %.80r" % (name, kind, value))
    return value


def _no_constant(text: str) -> Any:
    raise ValueError(text)  # NaN without quotes is not JSON.


def decode(packet: bytes) -> Message:
    """Reads a packet. Error UNREADABLE_MESSAGE: it is not a TrainerMessage."""
    try:
        top = json.loads(packet.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise unreadable("not JSON: %.80r" % packet) from error
    if not isinstance(top, dict):
        raise unreadable("not an object: %.80r" % packet)
    kinds = [k for k in top if k in _KINDS and top[k] is not None]
    if not kinds and set(top) - {"seq"}:
        raise Error("the exchange sent a message that this package does not "
                    "know: %.80r" % packet, reason="UNKNOWN_MESSAGE",
                    code="UNIMPLEMENTED", hint="Upgrade this package.")
    if len(kinds) != 1:
        raise unreadable("%d known kinds in one message: %.80r" %
                         (len(kinds), packet))
    seq = _to_int(top.get("seq", 0), "int64", "seq")
    if seq < 0:
        raise unreadable("seq is negative: %d" % seq)
    return Message(seq, kinds[0], _read(top[kinds[0]], _KINDS[kinds[0]],
                                        kinds[0]))


def _write(value: Any, kind: Any) -> Any:
    if isinstance(kind, list):
        return [_write(item, kind[0]) for item in value]
    if isinstance(kind, dict):
        return {field: _write(v, kind[field]) for field, v in value.items()}
    if isinstance(kind, tuple):
        return {key: _write(item, kind[0]) for key, item in value.items()}
    if kind == "int64":
        return str(int(value))
    if kind == "double":
        value = float(value)
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return value
    if kind in ("string", "optional string"):
        return str(value)[:_TEXT_LENGTH_MAX]
    return int(value) if kind == "int32" else bool(value)


def encode(seq: int, kind: str, body: Mapping[str, Any]) -> bytes:
    """Writes a packet. `body` holds fields of trainer.proto for `kind`."""
    message = {"seq": str(seq), kind: _write(body, _KINDS[kind])}
    return json.dumps(message, separators=(",", ":")).encode("utf-8")
