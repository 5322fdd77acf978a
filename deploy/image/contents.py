"""The contents of an image, as entries by path; see DESIGN.md of deploy."""

import os

import debian
import entries
from entries import Entry

# The user that the programs run as, and its group.
USER = 65532

# Where the text for the quickstart comes from, and which files are text.
_TEXT_FOLDERS = ("base", "cli", "coordinator", "deploy", "proto", "server",
                 "tests", "worker")
_TEXT_ENDINGS = (".md", ".h", ".proto")
# Data of tests may be damaged or foreign on purpose.
_NOT_TEXT = ("testdata", "golden")


def system(own_package):
    """Accounts, name resolution and the folders that a runtime mounts over."""
    def text(data):
        return Entry(data=data.encode(), package=own_package)

    return {
        "etc/passwd": text(
            "root:x:0:0:root:/:/nonexistent\n"
            "atoll:x:%d:%d:atoll:/tmp:/nonexistent\n" % (USER, USER)),
        "etc/group": text("root:x:0:\natoll:x:%d:\n" % USER),
        "etc/nsswitch.conf": text(
            "passwd: files\ngroup: files\nhosts: files dns\n"),
        "tmp": entries.directory(0o1777),
        "proc": entries.directory(0o555),
        "sys": entries.directory(0o555),
        "dev": entries.directory(),
        "lib": Entry(link="usr/lib"),
        "lib64": Entry(link="usr/lib64"),
        "usr/lib64": entries.directory(),
    }


def loader(interpreter):
    """The dynamic loader, at the path that the programs name."""
    real = os.path.realpath(interpreter)
    named = "/usr" + interpreter
    owner = debian.owners_of([real])[real]
    result = {real.lstrip("/"): Entry(mode=0o755, source=real, package=owner)}
    if named != real:
        result[named.lstrip("/")] = Entry(
            link=os.path.relpath(real, os.path.dirname(named)))
    return result


def certificates():
    """Mozilla's certificate authorities, as the package ships them. The bundle
    in /etc is not copied: it may hold authorities of this machine alone."""
    bundle = b""
    for path in debian.files_of("ca-certificates"):
        if path.endswith(".crt"):
            with open(path, "rb") as file:
                bundle += file.read()
    if not bundle:
        raise debian.ArtifactError("ca-certificates holds no certificate")
    return {
        "etc/ssl/certs/ca-certificates.crt": Entry(
            data=bundle, package="ca-certificates"),
        # OpenSSL's default.
        "usr/lib/ssl/cert.pem": Entry(
            link="/etc/ssl/certs/ca-certificates.crt"),
    }


def time_zones():
    result = {}
    for path in debian.files_of("tzdata"):
        if not path.startswith("/usr/share/zoneinfo/"):
            continue
        if os.path.islink(path):
            entry = Entry(link=os.readlink(path))
        else:
            entry = Entry(source=path, package="tzdata")
        result[path.lstrip("/")] = entry
    return result


def text_of(tree):
    """{file name: bytes}: the documents and interfaces of the source tree, one
    file for each of its folders."""
    texts = {}
    for top in _TEXT_FOLDERS:
        for folder, folders, names in os.walk(os.path.join(tree, top)):
            folders[:] = sorted(f for f in folders if f not in _NOT_TEXT and
                                not f.startswith("."))
            data = b""
            for name in sorted(names):
                if name.endswith(_TEXT_ENDINGS):
                    with open(os.path.join(folder, name), "rb") as file:
                        data += file.read()
            if data:
                below = os.path.relpath(folder, tree).replace(os.sep, "-")
                texts[below + ".txt"] = data
    return texts


def text(tree, own_package):
    texts = text_of(tree)
    if not texts:
        raise debian.ArtifactError("%s has no documents for the quickstart's "
                                   "text: give a source tree" % tree)
    return {"usr/share/atoll/text/" + name: Entry(data=data,
                                                  package=own_package)
            for name, data in texts.items()}
