"""Shared libraries of programs, and the Debian packages of files."""

import dataclasses
import functools
import os
import re
import subprocess

from entries import Entry


class ArtifactError(Exception):
    """An artifact cannot be made; the text says why and what to do."""


@dataclasses.dataclass(frozen=True)
class Package:
    name: str
    version: str
    is_debian: bool = True


def run(*command):
    """The standard output of a command, without settings of the caller."""
    done = subprocess.run(command, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True,
                          env={"PATH": os.environ["PATH"], "LC_ALL": "C"})
    if done.returncode != 0:
        raise ArtifactError("%s failed: %s" % (" ".join(command),
                                               done.stderr.strip()))
    return done.stdout


_RESOLVED = re.compile(r"^\s*(\S+) => (.*?)(?: \(0x[0-9a-f]+\))?$")


def parse_ldd(text):
    """{name: path} of the libraries in what ldd prints. An ArtifactError names a
    library that ldd does not find."""
    libraries = {}
    for line in text.splitlines():
        match = _RESOLVED.match(line)
        if not match:
            continue  # The kernel's own library, or the loader.
        name, path = match.groups()
        if not path.startswith("/"):
            raise ArtifactError("library %s is not on this machine: install "
                                "its package" % name)
        # The loader may be listed under its path.
        if not name.startswith("/"):
            libraries[name] = path
    return libraries


def libraries_of(paths):
    """{name: real path} of all libraries that these ELF files need."""
    result = {}
    for path in paths:
        found = parse_ldd(run("ldd", os.path.realpath(path)))
        result.update({n: os.path.realpath(p) for n, p in found.items()})
    return result


def interpreter_of(path):
    """The path of the loader that an ELF program names."""
    match = re.search(r"program interpreter: ([^\]]+)\]",
                      run("readelf", "--program-headers", "--wide", path))
    if not match:
        raise ArtifactError("%s is no dynamically linked program" % path)
    return match.group(1)


def architecture():
    return run("dpkg", "--print-architecture").strip()


def parse_dpkg_search(text):
    """{path: package} of what `dpkg -S` prints, without architectures."""
    owners = {}
    for line in text.splitlines():
        names, separator, path = line.partition(": ")
        if separator and not line.startswith("diversion by"):
            owners[path] = names.split(",")[0].split(":")[0]
    return owners


def owners_of(paths):
    """{path: name of its Debian package} of the paths that have one.

    Packages from before the merge of /lib into /usr/lib list the old path.
    """
    spellings = {p.removeprefix("/usr"): p for p in paths
                 if p.startswith("/usr/lib")}
    spellings.update({p: p for p in paths})
    # Its exit status is not 0 if one path has no owner.
    done = subprocess.run(["dpkg", "-S"] + sorted(spellings), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return {spellings[path]: owner
            for path, owner in parse_dpkg_search(done.stdout).items()}


@functools.cache
def installed(name):
    """The installed Debian package of this name."""
    try:
        version = run("dpkg-query", "-W", "-f=${Version}", name)
    except ArtifactError:
        version = ""
    if not version:
        raise ArtifactError("package %s is not installed: run "
                            "deploy/install_packages.sh" % name)
    return Package(name, version)


def files_of(name):
    """The sorted paths of a Debian package's files and links."""
    return sorted(p for p in run("dpkg", "-L", name).splitlines()
                  if os.path.islink(p) or os.path.isfile(p))


def vendor_package(path):
    """A package for a library of no Debian package, by its file's name."""
    stem, _, version = os.path.basename(path).partition(".so")
    return Package(stem, version.lstrip(".") or "unknown", is_debian=False)


def licences(names):
    """The copyright file of each Debian package."""
    result = {}
    for name in names:
        path = "/usr/share/doc/%s/copyright" % name
        if not os.path.isfile(path):
            raise ArtifactError(
                "%s is missing: reinstall package %s (dpkg may exclude "
                "documents on this machine)" % (path, name))
        result[path.lstrip("/")] = Entry(source=os.path.realpath(path),
                                         package=name)
    return result
