#!/usr/bin/python3
"""Makes the packages of built programs; build.sh calls it.

The same inputs give the same bytes, from any directory. Prints each file with
its SHA-256.
"""

import argparse
import hashlib
import os
import sys
import tempfile

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "artifacts"))
import deb  # noqa: E402
import debian  # noqa: E402
import programs  # noqa: E402
import sbom  # noqa: E402
import tarball  # noqa: E402
from entries import Entry  # noqa: E402

# systemd-sysusers, in one of its packages.
_SYSUSERS = "systemd | systemd-standalone-sysusers | systemd-sysusers"


class Maker:
    def __init__(self, arguments, scratch):
        self.arguments = arguments
        self.scratch = scratch
        self.version = programs.version_of(arguments.tree)
        self.written = []
        self.sources = programs.find(arguments.bin)
        self.stripped = {}
        for name, path in self.sources.items():
            self.stripped[name] = os.path.join(scratch, name + ".stripped")
            programs.strip(path, self.stripped[name])

    def path(self, name):
        self.written.append(name)
        return os.path.join(self.arguments.out, name)

    def libraries(self, names):
        return programs.libraries([self.sources[n] for n in names])

    def write_listing(self, artifact, own, libraries, contents):
        """Writes the SBOM of the file `artifact`."""
        used = {package.name: package for _, package in libraries.values()}
        if any(p.endswith("/atoll-coordinator") for p in contents):
            used.update((name, debian.installed(name))
                        for name in programs.LINKED_IN)
        listing = sbom.document(
            artifact, self.arguments.revision,
            sbom.time_text(self.arguments.epoch), debian.architecture(),
            [debian.Package(own, self.version, is_debian=False)] +
            list(used.values()), contents)
        with open(self.path(artifact + ".spdx.json"), "wb") as file:
            file.write(listing)

    def write_deb(self, package):
        for name in package.programs:
            package.contents["usr/bin/" + name] = Entry(
                mode=0o755, source=self.stripped[name], package=package.name)
        package.contents["usr/share/doc/%s/copyright" % package.name] = (
            deb.file("copyright", package.name))
        libraries = self.libraries(package.programs)
        needed = deb.depends([self.sources[n] for n in package.programs],
                             self.scratch)
        if package.scripts:
            needed += ", " + _SYSUSERS
        architecture = debian.architecture()
        name = "%s_%s_%s.deb" % (package.name, self.version, architecture)
        deb.write(package, self.version, architecture, needed,
                  self.arguments.epoch, self.scratch, self.path(name))
        self.write_listing(name, package.name, libraries, package.contents)

    def write_tarball(self):
        folder = "atoll-%s-linux-x86_64" % self.version
        libraries = self.libraries(programs.PROGRAMS)
        contents = tarball.contents(self.stripped, libraries, self.version,
                                    "atoll", self.scratch)
        name = folder + ".tar.gz"
        tarball.write(contents, folder, self.arguments.epoch, self.path(name))
        self.write_listing(name, "atoll", libraries, contents)

    def make(self):
        os.makedirs(self.arguments.out, exist_ok=True)
        self.write_deb(deb.command())
        self.write_deb(deb.services())
        self.write_tarball()
        sums = ""
        for name in sorted(self.written):
            with open(os.path.join(self.arguments.out, name), "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            sums += "%s  %s\n" % (digest, name)
        with open(self.path("SHA256SUMS"), "w", encoding="ascii") as file:
            file.write(sums)
        return sums


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True,
                        help="directory of the programs")
    parser.add_argument("--tree", required=True, help="the source tree")
    parser.add_argument("--out", required=True, help="directory to write to")
    parser.add_argument("--revision", required=True, help="commit of the tree")
    parser.add_argument("--epoch", required=True, type=int,
                        help="time of all files, in seconds since 1970")
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            print(Maker(arguments, scratch).make(), end="")
    except debian.ArtifactError as error:
        sys.exit("make_packages: %s" % error)


if __name__ == "__main__":
    main()
