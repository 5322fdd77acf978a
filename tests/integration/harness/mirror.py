"""What a file:// mirror holds (base/mirror/DESIGN.md)."""

import glob
import hashlib
import json
import os
import shutil

from harness import wait


def use(cluster):
    """Gives the cluster's programs a mirror. Before their first start."""
    cluster.mirror = os.path.join(cluster.directory, "mirror")


def names(cluster):
    """The objects' names, without unfinished ones."""
    found = []
    for path, _, files in os.walk(cluster.mirror):
        for name in files:
            whole = os.path.join(path, name)
            if name == "manifest.json" or name.endswith(".safetensors"):
                found.append(os.path.relpath(whole, cluster.mirror))
    return sorted(found)


def cluster_objects(cluster):
    """The cluster objects' paths, oldest first."""
    return sorted(glob.glob(os.path.join(cluster.mirror, "cluster", "*",
                                         "*.json")))


def cluster_object(cluster):
    """The newest one; None: there is none, or it was just collected."""
    try:
        with open(cluster_objects(cluster)[-1], encoding="utf-8") as file:
            return json.load(file)
    except (IndexError, FileNotFoundError):
        return None


def stamps(cluster):
    """{name: what changes if the object is written again}."""
    found = {}
    for name in names(cluster):
        try:
            status = os.stat(os.path.join(cluster.mirror, name))
        except FileNotFoundError:
            continue  # It was collected.
        found[name] = (status.st_ino, status.st_mtime_ns, status.st_size)
    return found


def owner(cluster):
    """The newest owner of the one run; {"run_epoch": ""}: there is none."""
    found = sorted(glob.glob(os.path.join(cluster.mirror, "*", "owner",
                                          "*.json")))
    if not found:
        return {"run_epoch": ""}
    with open(found[-1], encoding="utf-8") as file:
        return json.load(file)


def forget_owners(cluster):
    """As a mirror of an earlier program."""
    for path in glob.glob(os.path.join(cluster.mirror, "*", "owner")):
        shutil.rmtree(path)


def checkpoints(cluster, whole=True):
    """{(run_epoch, commit_seq): manifest}. Each has all its parts, and no part
    belongs to another, unless a server copies one now (`whole` is False)."""
    found, parts = {}, set()
    for name in names(cluster):
        if not name.endswith("manifest.json"):
            parts.add(name)
            continue
        with open(os.path.join(cluster.mirror, name), encoding="utf-8") as file:
            manifest = json.load(file)
        _, epoch, commit, _ = name.split("/")
        assert epoch == manifest["run_epoch"], name
        assert commit == manifest["pin"]["commit_seq"], name
        found[int(epoch), int(commit)] = manifest
    named = set()
    for (epoch, commit), manifest in found.items():
        for part in manifest["parts"]:
            name = "%s/%d/%d/shard-%d-fragment-%d-%s.safetensors" % (
                manifest["run_uid"], epoch, commit, part.get("shard", 0),
                part.get("fragment", 0), part["sha256"])
            named.add(name)
            with open(os.path.join(cluster.mirror, name), "rb") as file:
                data = file.read()
            assert len(data) == int(part["size_bytes"]), name
            assert hashlib.sha256(data).hexdigest() == part["sha256"], name
    assert parts == named or (not whole and parts > named), sorted(
        parts ^ named)
    return found


def wait_whole(cluster, run_id="run"):
    """Waits until every checkpoint that the run keeps is recorded as whole;
    checks that the mirror has exactly these."""
    def recorded():
        cluster.check_alive()
        pins = [c.pin for c in cluster.checkpoints(run_id).values()
                if c.pin.checkpoint]
        return pins if all(p.HasField("mirror") for p in pins) else None

    pins = wait.until("every checkpoint is in the mirror", recorded)
    found = checkpoints(cluster)
    kept = {(p.mirror.run_epoch, p.commit_seq) for p in pins}
    assert set(found) == kept, (sorted(found), sorted(kept))
    return found
