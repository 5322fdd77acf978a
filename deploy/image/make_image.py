#!/usr/bin/python3
"""Makes the OCI image archive of built programs; build.sh calls it.

Prints the layers' sizes to standard error and the manifest's digest to standard
output. The same inputs give the same digest, from any directory.
"""

import argparse
import os
import sys
import tempfile

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "artifacts"))
import contents  # noqa: E402
import debian  # noqa: E402
import oci  # noqa: E402
import programs  # noqa: E402
import sbom  # noqa: E402
from entries import Entry  # noqa: E402

# The most that an image downloads, without CUDA's libraries.
SIZE_MAX = 80 * 1000 * 1000
_OWN = "atoll"
_SBOM = "usr/share/atoll/sbom.spdx.json"


def library_layers(paths, vendor_libraries):
    """(entries of Debian's libraries, of vendors' libraries, packages).

    `vendor_libraries` are those that programs open at run time; without any
    only Debian's are permitted."""
    found = programs.libraries(list(paths) + vendor_libraries,
                               bool(vendor_libraries))
    for path in vendor_libraries:
        real = os.path.realpath(path)
        found[os.path.basename(path)] = (real, debian.vendor_package(real))
    folder = os.path.dirname(found["libc.so.6"][0]).lstrip("/")
    own, vendor, used = {}, {}, {}
    for name, (path, package) in sorted(found.items()):
        used[package.name] = package
        layer = own if package.is_debian else vendor
        layer["%s/%s" % (folder, name)] = Entry(mode=0o755, source=path,
                                                package=package.name)
    return own, vendor, used


def make(arguments, scratch):
    """Writes the archive, and the SBOM next to it. Returns (digest, layers)."""
    tree, epoch = arguments.tree, arguments.epoch
    version = programs.version_of(tree)
    paths = programs.find(arguments.bin)
    base, vendor, used = library_layers(paths.values(), arguments.library)
    for name in ("ca-certificates", "tzdata") + programs.LINKED_IN:
        used[name] = debian.installed(name)

    base.update(contents.system(_OWN))
    base.update(contents.loader(debian.interpreter_of(paths["atoll"])))
    base.update(contents.certificates())
    base.update(contents.time_zones())
    base.update(debian.licences(
        p.name for p in used.values() if p.is_debian))

    own = contents.text(tree, _OWN)
    for name, path in paths.items():
        stripped = os.path.join(scratch, name)
        programs.strip(path, stripped)
        own["usr/bin/" + name] = Entry(mode=0o755, source=stripped,
                                       package=_OWN)

    architecture = debian.architecture()
    created = sbom.time_text(epoch)
    reference = "atoll:%s%s" % (version, "-cuda" if arguments.library else "")
    everything = {**base, **vendor, **own}
    listing = sbom.document(
        reference, arguments.revision, created, architecture,
        [debian.Package(_OWN, version, is_debian=False)] +
        list(used.values()), everything)
    own[_SBOM] = Entry(data=listing, package=_OWN)

    # The layer that changes least comes first: an upgrade downloads only the
    # last.
    layers = [oci.write_layer("Debian's libraries", base, epoch,
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
        raise debian.ArtifactError(
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
    parser.add_argument("--library", action="append", default=[],
                        help="a library of CUDA, which programs open at run "
                        "time; permits libraries of no Debian package")
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            print(make(arguments, scratch))
    except debian.ArtifactError as error:
        sys.exit("make_image: %s" % error)


if __name__ == "__main__":
    main()
