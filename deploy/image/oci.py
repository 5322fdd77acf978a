"""Writes an OCI image archive whose bytes depend only on its contents."""

import dataclasses
import hashlib
import json

import entries
from entries import Entry


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


@dataclasses.dataclass
class Layer:
    """A layer's blob in a file. `diff_id` is the digest of the plain tar."""
    path: str
    size: int
    digest: str
    diff_id: str
    media_type: str
    title: str


def write_layer(title, contents, mtime, path, compress=True):
    """Writes a layer to the file `path`. Returns its Layer."""
    with open(path, "wb") as file:
        blob = _Sink(file)
        packed = entries.Gzip(blob) if compress else blob
        plain = _Sink(packed) if compress else blob
        entries.write_tar(contents, mtime, plain)
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

    contents = {
        "oci-layout": Entry(data=canonical_json(
            {"imageLayoutVersion": "1.0.0"})),
        "index.json": Entry(data=index),
        blob_path(config_blob["digest"]): Entry(data=config),
        blob_path(manifest_blob["digest"]): Entry(data=manifest),
    }
    for layer in layers:
        contents[blob_path(layer.digest)] = Entry(source=layer.path)
    with open(path, "wb") as file:
        entries.write_tar(contents, mtime, file)
    return manifest_blob["digest"]
