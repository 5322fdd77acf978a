"""Debian packages whose bytes depend only on their contents."""

import dataclasses
import os
import re
import subprocess

import debian
import entries
from entries import Entry

_FILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "files")


@dataclasses.dataclass
class Deb:
    """One package. The paths of `contents` have no leading slash."""
    name: str
    summary: str
    description: str
    programs: tuple        # Their names.
    fields: dict           # Further fields of its control file.
    contents: dict = dataclasses.field(default_factory=dict)
    scripts: tuple = ()    # Names of maintainer scripts.

    @property
    def conffiles(self):
        return sorted("/" + path for path, entry in self.contents.items()
                      if path.startswith("etc/") and entry.is_file)


def file(name, package, **values):
    """The file of `files/`, with its @KEY@ replaced by `values`."""
    with open(os.path.join(_FILES, name), encoding="utf-8") as source:
        text = source.read()
    for key, value in values.items():
        text = text.replace("@%s@" % key, value)
    return Entry(data=text.encode(), package=package)


def _settings(name, package):
    # Keys for S3 may be in it: systemd reads it as root.
    return dataclasses.replace(file(name, package), mode=0o640)


def command():
    name = "atoll"
    unit = "atoll-island@.service"
    return Deb(
        name=name, programs=("atoll",),
        summary="trains one model on many islands of hardware",
        description="The command of Atoll: it joins a run as an island, and "
        "creates and\nwatches runs. A systemd unit runs an island from the "
        "start of a machine;\n/etc/atoll/island.env says how.",
        fields={"Recommends": "ca-certificates", "Suggests": "atoll-server"},
        contents={
            "usr/lib/systemd/system/" + unit: file(unit, name),
            "etc/atoll/island.env": _settings("island.env", name),
        })


def services():
    name = "atoll-server"
    deb = Deb(
        name=name,
        programs=("atoll-coordinator", "atoll-gate", "atoll-server"),
        summary="coordinator, parameter server and gate of Atoll",
        description="The services of a run, each with a systemd unit and a "
        "user. No service\nstarts before it has a certificate; the files in "
        "/etc/atoll say how.",
        fields={"Suggests": "atoll"},
        scripts=("postinst", "postrm", "prerm"))
    sandbox = file("sandbox", name).data.decode().strip()
    for service in ("coordinator", "gate", "server"):
        unit = "atoll-%s.service" % service
        deb.contents["usr/lib/systemd/system/" + unit] = file(
            unit, name, SANDBOX=sandbox)
        deb.contents["etc/atoll/%s.env" % service] = _settings(
            service + ".env", name)
    deb.contents["usr/lib/sysusers.d/atoll-server.conf"] = file(
        "sysusers.conf", name)
    return deb


def depends(programs, scratch):
    """The packages, with the least versions, of the programs' libraries."""
    os.makedirs(os.path.join(scratch, "debian"), exist_ok=True)
    with open(os.path.join(scratch, "debian", "control"), "w",
              encoding="ascii") as control:
        control.write("Source: atoll\n\nPackage: atoll\nArchitecture: any\n")
    done = subprocess.run(
        ["dpkg-shlibdeps", "-O", *("-e" + p for p in programs)],
        cwd=scratch, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    match = re.search(r"^shlibs:Depends=(.+)$", done.stdout, re.M)
    if done.returncode != 0 or not match:
        raise debian.ArtifactError("dpkg-shlibdeps failed: " + done.stderr)
    return match.group(1)


def control(deb, version, architecture, needed):
    size = sum(entry.size() for entry in deb.contents.values()
               if entry.is_file)
    fields = {
        "Package": deb.name,
        "Version": version,
        "Architecture": architecture,
        "Maintainer": "The authors of Atoll <atoll@localhost>",
        "Installed-Size": str(-(-size // 1024)),
        "Depends": needed,
        **deb.fields,
        "Section": "science",
        "Priority": "optional",
        "Description": deb.summary + "\n " + deb.description.replace(
            "\n", "\n "),
    }
    return "".join("%s: %s\n" % field for field in fields.items())


def write(deb, version, architecture, needed, epoch, scratch, path):
    """Writes `deb` to the file `path`."""
    root = os.path.join(scratch, deb.name)
    staged = entries.with_parents(deb.contents)
    staged["DEBIAN/control"] = Entry(
        data=control(deb, version, architecture, needed).encode())
    if deb.conffiles:
        staged["DEBIAN/conffiles"] = Entry(
            data="".join(x + "\n" for x in deb.conffiles).encode())
    for name in deb.scripts:
        staged["DEBIAN/" + name] = dataclasses.replace(
            file(name, deb.name), mode=0o755)
    entries.write_tree(staged, epoch, root)
    # The result of several threads differs from that of one.
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "--threads-max=1", "-Zxz",
         "-z%d" % entries.LEVEL, "--build", root, path],
        check=True, stdout=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C",
             "SOURCE_DATE_EPOCH": str(epoch)})
