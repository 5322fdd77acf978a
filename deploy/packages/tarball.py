"""The tarball: all programs with their libraries, but for glibc's."""

import os
import re
import shutil

import debian
import entries
import programs
from deb import file
from entries import Entry

# Debian 12's. The programs may need no newer one.
GLIBC_MAX = (2, 36)


def newest_glibc(text):
    """The newest version of glibc in what `readelf --version-info` prints."""
    return max(((int(a), int(b)) for a, b in
                re.findall(r"\bGLIBC_(\d+)\.(\d+)", text)), default=(0, 0))


def check_glibc(paths):
    for path in paths:
        version = newest_glibc(debian.run("readelf", "--version-info",
                                          "--wide", path))
        if version > GLIBC_MAX:
            raise debian.ArtifactError(
                "%s needs glibc %d.%d; the tarball promises %d.%d: build on "
                "Debian 12" % ((path,) + version + GLIBC_MAX))


def check_search_path(path):
    """A library with a search path of its own would not use the program's."""
    dynamic = debian.run("readelf", "--dynamic", "--wide", path)
    if re.search(r"\((RPATH|RUNPATH)\)", dynamic):
        raise debian.ArtifactError("%s names a place of libraries" % path)


def contents(stripped, libraries, version, own, scratch):
    """The entries below the tarball's one folder.

    `stripped` is {name: path of a program}, `libraries` as
    programs.libraries() returns it, `own` the package that the programs are.
    """
    result = {"README": file("README.tarball", own, VERSION=version),
              "share/doc/atoll/copyright": file("copyright", own)}
    for name, path in stripped.items():
        patched = os.path.join(scratch, name + ".patched")
        shutil.copyfile(path, patched)
        programs.use_own_libraries(patched)
        result["bin/" + name] = Entry(mode=0o755, source=patched, package=own)
    used = set()
    for name, (path, package) in libraries.items():
        if package.name == "libc6":
            continue
        check_search_path(path)
        result["lib/" + name] = Entry(source=path, package=package.name)
        used.add(package.name)
    check_glibc([x.source for x in result.values() if x.source])
    for path, entry in debian.licences(used).items():
        result[path.removeprefix("usr/")] = entry
    return result


def write(files, folder, epoch, path):
    with open(path, "wb") as target:
        packed = entries.Gzip(target)
        entries.write_tar({"%s/%s" % (folder, name): entry
                           for name, entry in files.items()}, epoch, packed)
        packed.finish()
