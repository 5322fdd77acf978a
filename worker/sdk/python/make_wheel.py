#!/usr/bin/python3
"""Writes the wheel: `make_wheel.py WHEEL FILE...`.

The files are those of the package, below a folder `atoll`, and the .proto files
of `atoll/v1`, of which the wheel has messages and stubs. The bytes of the wheel
depend only on theirs: no time, no order, no compression.
"""

import base64
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile

_PROTOC = "/usr/bin/protoc"
_GRPC_PLUGIN = "/usr/bin/grpc_python_plugin"

_METADATA = """\
Metadata-Version: 2.1
Name: atoll
Version: %s
Summary: Trains one model on islands of hardware with slow links between them
Requires-Python: >=3.10
Requires-Dist: numpy>=1.24
Provides-Extra: torch
Requires-Dist: torch>=2.6; extra == "torch"
Provides-Extra: api
Requires-Dist: grpcio>=1.51; extra == "api"
Requires-Dist: protobuf>=4.21; extra == "api"
"""
_WHEEL = """\
Wheel-Version: 1.0
Generator: atoll
Root-Is-Purelib: true
Tag: py3-none-any
"""
_V1 = '"""The API: messages and stubs. They need the extra `api`."""\n'


def _name(path):
    """The file's name in the wheel."""
    return "atoll/" + re.split(r"(?:^|/)atoll/", path)[-1]


def package_files(paths):
    """{name in the wheel: content}."""
    files = {}
    protos = sorted(p for p in paths if p.endswith(".proto"))
    for path in set(paths).difference(protos):
        with open(path, "rb") as file:
            files[_name(path)] = file.read()
    if protos:
        files["atoll/v1/__init__.py"] = _V1.encode()
    with tempfile.TemporaryDirectory() as folder:
        _generate(protos, folder)
        for found, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(found, name)
                with open(path, "rb") as file:
                    files[_name(os.path.relpath(path, folder))] = file.read()
    return files


def _generate(protos, folder):
    """Writes messages, and stubs of the files with services."""
    roots = {"-I" + (p[:-len(_name(p))] or ".") for p in protos}
    services = [p for p in protos if p.endswith("_service.proto")]
    for flags, of in (
            (["--python_out=" + folder], protos),
            (["--plugin=protoc-gen-grpc=" + _GRPC_PLUGIN,
              "--grpc_out=" + folder], services)):
        if of:
            subprocess.run([_PROTOC, *roots, *flags, *of], check=True)


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
