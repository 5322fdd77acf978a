"""Writes an OCI image archive whose bytes depend only on its contents.

Entries are sorted, belong to root and have one time; gzip headers are fixed.
"""

import dataclasses
import hashlib
import io
import json
import os
import struct
import tarfile
import zlib


@dataclasses.dataclass
class Entry:
    """One path of an image. A file has `data`, or is a copy of `source`."""
    mode: int = 0o644
    data: bytes = b""
    source: str = ""
    link: str = ""            # Target of a symbolic link.
    is_directory: bool = False
    package: str = ""         # Name of the package that it comes from.

    @property
    def is_file(self):
        return not self.link and not self.is_directory

    def size(self):
        return os.path.getsize(self.source) if self.source else len(self.data)

    def open(self):
        if self.source:
            return open(self.source, "rb")
        return io.BytesIO(self.data)


def directory(mode=0o755):
    return Entry(mode=mode, is_directory=True)


def with_parents(entries):
    """`entries` by path, with a directory for each parent that they lack."""
    result = dict(entries)
    for path in entries:
        parent = os.path.dirname(path)
        while parent and parent not in result:
            result[parent] = directory()
            parent = os.path.dirname(parent)
    return result


def write_tar(entries, mtime, file):
    """Writes `entries` ({path without a leading slash: Entry}) as a tar."""
    with tarfile.open(fileobj=file, mode="w",
                      format=tarfile.USTAR_FORMAT) as tar:
        for path, entry in sorted(with_parents(entries).items()):
            info = tarfile.TarInfo(path)
            info.mode = entry.mode
            info.mtime = mtime
            if entry.is_directory:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            elif entry.link:
                info.type = tarfile.SYMTYPE
                info.mode = 0o777
                info.linkname = entry.link
                tar.addfile(info)
            else:
                info.size = entry.size()
                with entry.open() as data:
                    tar.addfile(info, data)


class _Sink:
    """A file that hashes what is written to it."""

    def __init__(self, file):
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data):
        self._hash.update(data)
        self._file.write(data)
        self.size += len(data)
        return len(data)

    def tell(self):
        return self.size

    @property
    def digest(self):
        return "sha256:" + self._hash.hexdigest()


class _Gzip:
    """Compresses into a file, with a header that has no time and no system."""

    def __init__(self, file):
        self._file = file
        self._compressor = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._crc = 0
        self._size = 0
        file.write(b"\x1f\x8b\x08\0\0\0\0\0\0\xff")

    def write(self, data):
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)
        self._file.write(self._compressor.compress(data))

    def finish(self):
        self._file.write(self._compressor.flush())
        self._file.write(struct.pack("<II", self._crc,
                                     self._size & 0xffffffff))


@dataclasses.dataclass
class Layer:
    """A layer's blob in a file. `diff_id` is the digest of the plain tar."""
    path: str
    size: int
    digest: str
    diff_id: str
    media_type: str
    title: str


def write_layer(title, entries, mtime, path, compress=True):
    """Writes a layer to the file `path`. Returns its Layer."""
    with open(path, "wb") as file:
        blob = _Sink(file)
        packed = _Gzip(blob) if compress else blob
        plain = _Sink(packed) if compress else blob
        write_tar(entries, mtime, plain)
        if compress:
            packed.finish()
    media_type = "application/vnd.oci.image.layer.v1.tar"
    return Layer(path, blob.size, blob.digest, plain.digest,
                 media_type + ("+gzip" if compress else ""), title)


def canonical_json(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _blob(media_type, data):
    return {"mediaType": media_type, "size": len(data),
            "digest": "sha256:" + hashlib.sha256(data).hexdigest()}


def write_archive(layers, settings, architecture, created, reference, mtime,
                  path):
    """Writes an OCI archive of `layers` to the file `path`.

    `settings` is the "config" object of the image, `created` its RFC 3339 time,
    `reference` its NAME:TAG. Returns the manifest's digest.
    """
    config = canonical_json({
        "architecture": architecture,
        "os": "linux",
        "created": created,
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [x.diff_id for x in layers]},
        "history": [{"created": created, "created_by": "atoll: " + x.title}
                    for x in layers],
    })
    config_blob = _blob("application/vnd.oci.image.config.v1+json", config)
    manifest = canonical_json({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config_blob,
        "layers": [{"mediaType": x.media_type, "size": x.size,
                    "digest": x.digest} for x in layers],
        "annotations": settings["Labels"],
    })
    manifest_blob = _blob("application/vnd.oci.image.manifest.v1+json",
                          manifest)
    index = canonical_json({"schemaVersion": 2, "manifests": [dict(
        manifest_blob,
        platform={"architecture": architecture, "os": "linux"},
        annotations={
            "org.opencontainers.image.ref.name": reference.split(":")[1],
            "io.containerd.image.name": "docker.io/library/" + reference,
        })]})

    def blob_path(digest):
        return "blobs/" + digest.replace(":", "/")

    entries = {
        "oci-layout": Entry(data=canonical_json(
            {"imageLayoutVersion": "1.0.0"})),
        "index.json": Entry(data=index),
        blob_path(config_blob["digest"]): Entry(data=config),
        blob_path(manifest_blob["digest"]): Entry(data=manifest),
    }
    for layer in layers:
        entries[blob_path(layer.digest)] = Entry(source=layer.path)
    with open(path, "wb") as file:
        write_tar(entries, mtime, file)
    return manifest_blob["digest"]
