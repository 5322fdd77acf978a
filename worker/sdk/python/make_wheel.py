#!/usr/bin/python3
"""Writes the wheel: `make_wheel.py WHEEL FILE...`.

The files are those of the package, below a folder `atoll`. The bytes of the
wheel depend only on theirs: no time, no order, no compression.
"""

import base64
import hashlib
import os
import re
import sys
import zipfile

_METADATA = """\
Metadata-Version: 2.1
Name: atoll
Version: %s
Summary: Trains one model on islands of hardware with slow links between them
Requires-Python: >=3.11
Requires-Dist: numpy>=1.24
Provides-Extra: torch
Requires-Dist: torch>=2.6; extra == "torch"
"""
_WHEEL = """\
Wheel-Version: 1.0
Generator: atoll
Root-Is-Purelib: true
Tag: py3-none-any
"""


def package_files(paths):
    """{name in the wheel: content}."""
    files = {}
    for path in paths:
        name = "atoll/" + re.split(r"(?:^|/)atoll/", path)[-1]
        with open(path, "rb") as file:
            files[name] = file.read()
    return files


def version_of(files):
    text = files["atoll/__init__.py"].decode("utf-8")
    return re.search(r'^__version__ = "([^"]+)"$', text, re.M).group(1)


def with_metadata(files):
    """The files, with those that an installer reads."""
    version = version_of(files)
    info = "atoll-%s.dist-info/" % version
    whole = dict(sorted(files.items()))
    whole[info + "METADATA"] = (_METADATA % version).encode()
    whole[info + "WHEEL"] = _WHEEL.encode()
    rows = []
    for name, data in whole.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
        rows.append("%s,sha256=%s,%d" % (name, digest.rstrip(b"=").decode(),
                                         len(data)))
    rows.append(info + "RECORD,,")
    whole[info + "RECORD"] = ("\n".join(rows) + "\n").encode()
    return whole


def main(wheel, *paths):
    files = package_files(paths)
    expected = "atoll-%s-py3-none-any.whl" % version_of(files)
    if os.path.basename(wheel) != expected:
        sys.exit("%s: the package's version makes it %s" % (wheel, expected))
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        for name, data in with_metadata(files).items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)


if __name__ == "__main__":
    main(*sys.argv[1:])
