"""Writes TOML: tables of numbers, texts, lists and tables. Pure."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Mapping

from .errors import Error

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")


def _key(name: str) -> str:
    return name if _BARE_KEY.match(name) else _text(name)


def _text(value: str) -> str:
    # JSON's escapes are TOML's, except that JSON leaves DEL as it is and
    # splits a character beyond 16 bits in two.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return repr(value)
        return "nan" if math.isnan(value) else (
            "inf" if value > 0 else "-inf")
    if isinstance(value, (list, tuple)):
        return "[%s]" % ", ".join(_value(item, where) for item in value)
    raise Error("%s is a %s, which a run file cannot hold" %
                (where, type(value).__name__), code="INVALID_ARGUMENT")


def _lines(table: Mapping[str, Any], path: list[str]) -> list[str]:
    lines = ["%s = %s" % (_key(name), _value(value, ".".join(path + [name])))
             for name, value in table.items()
             if not isinstance(value, Mapping) and value is not None]
    for name, value in table.items():
        if isinstance(value, Mapping):
            inner = path + [name]
            lines += ["", "[%s]" % ".".join(map(_key, inner))]
            lines += _lines(value, inner)
    return lines


def dumps(table: Mapping[str, Any]) -> str:
    """The document. Values that are None are left out."""
    return "\n".join(_lines(table, [])) + "\n"
