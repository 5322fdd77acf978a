#!/usr/bin/python3
"""Makes the OCI image archive of built programs; build.sh calls it.

Prints the layers' sizes to standard error and the manifest's digest to standard
output. The same inputs give the same digest, from any directory.
"""

import argparse
import datetime
import os
import subprocess
import sys
import tempfile

import contents
import oci
import packages
import sbom
from oci import Entry

PROGRAMS = ("atoll", "atoll-coordinator", "atoll-gate", "atoll-server")
# The most that an image downloads, without CUDA's libraries.
SIZE_MAX = 80 * 1000 * 1000
_OWN = "atoll"
_SBOM = "usr/share/atoll/sbom.spdx.json"


def strip(source, target):
    subprocess.run(["strip", "--strip-all", "-o", target, source], check=True)


def library_layers(programs, vendor_libraries, node_libraries):
    """(entries of Debian's libraries, of vendors' libraries, packages).

    `vendor_libraries` is None where only Debian's are permitted; otherwise the
    libraries that programs open at run time. The machine that runs the image
    gives `node_libraries`, by name."""
    extra = vendor_libraries or []
    found = packages.libraries_of(list(programs) + extra)
    found.update({os.path.basename(p): os.path.realpath(p) for p in extra})
    for name in node_libraries:
        found.pop(name, None)
    folder = os.path.dirname(found["libc.so.6"]).lstrip("/")
    owners = packages.owners_of(found.values())
    debian, vendor, used = {}, {}, {}
    for name, path in sorted(found.items()):
        if path in owners:
            layer, package = debian, packages.installed(owners[path])
        elif vendor_libraries is None:
            raise packages.ImageError(
                "%s belongs to no Debian package: build with --cuda, or build "
                "the programs without CUDA" % path)
        else:
            layer, package = vendor, packages.vendor_package(path)
        used[package.name] = package
        layer["%s/%s" % (folder, name)] = Entry(mode=0o755, source=path,
                                                package=package.name)
    return debian, vendor, used


def make(arguments, scratch):
    """Writes the archive and the SBOM beside it. Returns (digest, layers)."""
    tree, epoch = arguments.tree, arguments.epoch
    version = contents.version_of(tree)
    programs = {}
    for name in PROGRAMS:
        path = os.path.join(arguments.bin, name)
        if not os.access(path, os.X_OK):
            raise packages.ImageError("%s is no program" % path)
        # The loader's path of a library may be relative to the real program.
        programs[name] = os.path.realpath(path)
    debian, vendor, used = library_layers(
        programs.values(), arguments.library if arguments.cuda else None,
        ["libcuda.so.1"] + arguments.node_library)
    for name in ("ca-certificates", "tzdata"):
        used[name] = packages.installed(name)

    debian.update(contents.system(_OWN))
    debian.update(contents.loader(
        packages.interpreter_of(programs["atoll"])))
    debian.update(contents.certificates())
    debian.update(contents.time_zones())
    debian.update(contents.licences(
        p.name for p in used.values() if p.is_debian))

    own = contents.text(tree, _OWN)
    for name, path in programs.items():
        stripped = os.path.join(scratch, name)
        strip(path, stripped)
        own["usr/bin/" + name] = Entry(mode=0o755, source=stripped,
                                       package=_OWN)

    architecture = packages.run("dpkg", "--print-architecture").strip()
    created = datetime.datetime.fromtimestamp(
        epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    reference = "atoll:%s%s" % (version, "-cuda" if arguments.cuda else "")
    everything = {**debian, **vendor, **own}
    listing = sbom.document(
        reference, arguments.revision, created, architecture,
        [packages.Package(_OWN, version, is_debian=False)] +
        list(used.values()), everything)
    own[_SBOM] = Entry(data=listing, package=_OWN)

    # The layer that changes least comes first: an upgrade downloads only the
    # last.
    layers = [oci.write_layer("Debian's libraries", debian, epoch,
                              os.path.join(scratch, "debian.layer"))]
    if vendor:
        # NVIDIA's libraries are compressed already.
        layers.append(oci.write_layer(
            "CUDA's libraries", vendor, epoch,
            os.path.join(scratch, "vendor.layer"), compress=False))
    layers.append(oci.write_layer("programs", own, epoch,
                                  os.path.join(scratch, "own.layer")))
    for layer in layers:
        print("%8.1f MB  %s" % (layer.size / 1e6, layer.title),
              file=sys.stderr)
    size = sum(x.size for x in layers if x.media_type.endswith("gzip"))
    if size > SIZE_MAX:
        raise packages.ImageError(
            "the image has %.1f MB without CUDA's libraries; the limit is "
            "%.0f MB" % (size / 1e6, SIZE_MAX / 1e6))

    title = "org.opencontainers.image."
    settings = {
        "Cmd": ["atoll", "--help"],
        "Env": ["PATH=/usr/bin", "HOME=/tmp"],
        "User": "%d:%d" % (contents.USER, contents.USER),
        "WorkingDir": "/",
        "Labels": {
            title + "title": "atoll",
            title + "description":
                "Coordinator, gate, parameter server and command of Atoll",
            title + "version": version,
            title + "revision": arguments.revision,
            title + "created": created,
        },
    }
    os.makedirs(os.path.dirname(os.path.abspath(arguments.out)), exist_ok=True)
    digest = oci.write_archive(layers, settings, architecture, created,
                               reference, epoch, arguments.out)
    with open(os.path.splitext(arguments.out)[0] + ".spdx.json",
              "wb") as file:
        file.write(listing)
    return digest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True,
                        help="directory of the programs")
    parser.add_argument("--tree", required=True, help="the source tree")
    parser.add_argument("--out", required=True, help="archive to write")
    parser.add_argument("--revision", required=True, help="commit of the tree")
    parser.add_argument("--epoch", required=True, type=int,
                        help="time of all files, in seconds since 1970")
    parser.add_argument("--cuda", action="store_true",
                        help="permit libraries of no Debian package")
    parser.add_argument("--library", action="append", default=[],
                        help="with --cuda: a library opened at run time")
    parser.add_argument("--node-library", action="append", default=[],
                        help="name of a library that the machine running the "
                        "image gives, as it gives libcuda.so.1")
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            print(make(arguments, scratch))
    except packages.ImageError as error:
        sys.exit("make_image: %s" % error)


if __name__ == "__main__":
    main()
