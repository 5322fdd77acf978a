"""The programs that every artifact is made of."""

import os
import re
import subprocess

import debian
from debian import ArtifactError

PROGRAMS = ("atoll", "atoll-coordinator", "atoll-gate", "atoll-server")


def find(directory):
    """{name: real path} of the programs in `directory`."""
    programs = {}
    for name in PROGRAMS:
        path = os.path.join(directory, name)
        if not os.access(path, os.X_OK):
            raise ArtifactError("%s is no program" % path)
        # The loader's path of a library may be relative to the real program.
        programs[name] = os.path.realpath(path)
    return programs


# Debian's packages of which a program of the services has code in it.
LINKED_IN = ("libjemalloc-dev",)


def strip(source, target):
    subprocess.run(["strip", "--strip-all", "-o", target, source], check=True)


def use_own_libraries(program):
    """Lets a program find its libraries in ../lib."""
    # RPATH, unlike RUNPATH, is also for the libraries' own libraries, and comes
    # before LD_LIBRARY_PATH.
    debian.run("patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/../lib",
               program)


def libraries(paths, permits_vendors=False):
    """{name: (path, debian.Package)} of all libraries that the ELF files
    `paths` need. The machine that runs them gives the driver's library."""
    found = debian.libraries_of(paths)
    found.pop("libcuda.so.1", None)
    owners = debian.owners_of(found.values())
    result = {}
    for name, path in sorted(found.items()):
        if path in owners:
            package = debian.installed(owners[path])
        elif permits_vendors:
            package = debian.vendor_package(path)
        else:
            raise ArtifactError(
                "%s belongs to no Debian package, so no package or image may "
                "hold it" % path)
        result[name] = (path, package)
    return result


def version_of(tree):
    """The programs' version, from their header."""
    path = os.path.join(tree, "base/obs/version.h")
    with open(path, encoding="utf-8") as file:
        match = re.search(r'kProgramVersion\[\] = "([^"]+)"', file.read())
    if not match:
        raise ArtifactError("%s has no kProgramVersion" % path)
    return match.group(1)
