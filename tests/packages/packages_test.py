#!/usr/bin/python3
"""The packages of the programs under test: twice the same bytes, and what is in
them."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from unittest import mock

_HERE = os.path.dirname(os.path.abspath(__file__))
_TREE = os.path.join(_HERE, "..", "..")
sys.path[:0] = [os.path.join(_HERE, "..", "integration"),
                os.path.join(_TREE, "deploy", "artifacts"),
                os.path.join(_TREE, "deploy", "packages")]

from harness import cases  # noqa: E402
from harness import processes  # noqa: E402
import debian  # noqa: E402
import tarball  # noqa: E402

_PROGRAMS = (processes.CLI, processes.COORDINATOR, processes.GATE,
             processes.SERVER)
_COMMAND = "atoll_1.2.3_amd64.deb"
_SERVICES = "atoll-server_1.2.3_amd64.deb"
_TARBALL = "atoll-1.2.3-linux-x86_64.tar.gz"
_ARTIFACTS = (_COMMAND, _SERVICES, _TARBALL)
# The level of the compression is most of a build's time, and proves nothing.
_MAKE = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import make_packages
make_packages.deb.entries.LEVEL = 0
make_packages.main()
"""


def build(directory, **settings):
    """Builds all from copies in `directory`. Returns the directory of the
    artifacts. `settings` are for the process."""
    tree = os.path.join(directory, "tree")
    programs = os.path.join(directory, "programs")
    os.makedirs(os.path.join(tree, "base", "obs"))
    os.makedirs(programs)
    with open(os.path.join(tree, "base/obs/version.h"), "w",
              encoding="ascii") as file:
        file.write('constexpr char kProgramVersion[] = "1.2.3";\n')
    for folder in ("artifacts", "packages"):
        shutil.copytree(os.path.join(_TREE, "deploy", folder),
                        os.path.join(tree, "deploy", folder))
    for relative in _PROGRAMS:
        shutil.copy(processes.binary(relative), programs)
    out = os.path.join(directory, "out")
    done = subprocess.run(
        [sys.executable, "-B", "-c", _MAKE,
         os.path.join(tree, "deploy/packages"),
         "--bin", programs, "--tree", tree, "--out", out,
         "--revision", "none", "--epoch", "1700000000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=dict(os.environ, TMPDIR=directory), **settings)
    assert done.returncode == 0, done.stderr
    return out


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class PackagesTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.place = tempfile.mkdtemp(prefix="packages-",
                                     dir=os.environ.get("TEST_TMPDIR"))
        cls.addClassCleanup(shutil.rmtree, cls.place, ignore_errors=True)
        cls.out = build(os.path.join(cls.place, "one"))
        with tarfile.open(os.path.join(cls.out, _TARBALL)) as tar:
            cls.members = {m.name: m for m in tar.getmembers()}
            tar.extractall(cls.place)
        cls.unpacked = os.path.join(cls.place, "atoll-1.2.3-linux-x86_64")

    def path(self, artifact):
        return os.path.join(self.out, artifact)

    def listing(self, artifact):
        return json.loads(read(self.path(artifact + ".spdx.json")))

    def unpack(self, artifact):
        """The folder with the files of a .deb, and its control files in
        DEBIAN/."""
        root = os.path.join(self.place, artifact + ".root")
        if not os.path.exists(root):
            subprocess.run(["dpkg-deb", "--raw-extract", self.path(artifact),
                            root], check=True)
        return root

    def contained(self, artifact):
        """{path: "MODE OWNER"} of a .deb, without directories."""
        result = {}
        for line in debian.run("dpkg-deb", "--contents",
                               self.path(artifact)).splitlines():
            mode, owner, _, _, _, path = line.split(None, 5)
            self.assertEqual(owner, "root/root", path)
            if mode.startswith("d"):
                self.assertEqual(mode, "drwxr-xr-x", path)
            else:
                result[path.removeprefix("./")] = mode
        return result

    def fields(self, artifact):
        lines = debian.run("dpkg-deb", "--field", self.path(artifact))
        return dict(re.findall(r"^(\S+): (.*)$", lines, re.M))

    def test_a_build_in_another_directory_has_the_same_bytes(self):
        other = build(os.path.join(self.place, "another", "deeper"),
                      umask=0o077)
        sums = read(self.path("SHA256SUMS"))
        self.assertEqual(sums, read(os.path.join(other, "SHA256SUMS")))
        listed = dict(line.split("  ")[::-1] for line in sums.splitlines())
        self.assertEqual(sorted(listed), sorted(
            name + end for name in _ARTIFACTS for end in ("", ".spdx.json")))
        for name, value in listed.items():
            self.assertEqual(digest(self.path(name)), value, name)
            self.assertEqual(digest(os.path.join(other, name)), value, name)

    def test_the_debs_have_exactly_these_files(self):
        program, text = "-rwxr-xr-x", "-rw-r--r--"
        settings = "-rw-r-----"  # AWS keys may be in it.
        units = "usr/lib/systemd/system/atoll-%s.service"
        self.assertEqual(self.contained(_COMMAND), {
            "etc/atoll/island.env": settings,
            "usr/bin/atoll": program,
            units % "island@": text,
            "usr/share/doc/atoll/copyright": text,
        })
        self.assertEqual(self.contained(_SERVICES), {
            "etc/atoll/coordinator.env": settings,
            "etc/atoll/gate.env": settings,
            "etc/atoll/server.env": settings,
            "usr/bin/atoll-coordinator": program,
            "usr/bin/atoll-gate": program,
            "usr/bin/atoll-server": program,
            units % "coordinator": text,
            units % "gate": text,
            units % "server": text,
            "usr/lib/sysusers.d/atoll-server.conf": text,
            "usr/share/doc/atoll-server/copyright": text,
        })

    def test_the_debs_name_the_libraries_of_their_programs(self):
        for artifact in (_COMMAND, _SERVICES):
            fields = self.fields(artifact)
            self.assertEqual(fields["Version"], "1.2.3")
            self.assertEqual(fields["Architecture"], "amd64")
            for package in ("libc6", "libgrpc++1.51", "libssl3", "libstdc++6"):
                self.assertRegex(fields["Depends"],
                                 re.escape(package) + r" \(>= ")
        self.assertIn("systemd-sysusers", fields["Depends"])
        self.assertIn("librocksdb", fields["Depends"])
        self.assertIn("libcurl4", self.fields(_COMMAND)["Depends"])

    def test_an_operators_configuration_survives_an_upgrade(self):
        self.assertEqual(
            read(os.path.join(self.unpack(_SERVICES), "DEBIAN/conffiles")),
            "/etc/atoll/coordinator.env\n/etc/atoll/gate.env\n"
            "/etc/atoll/server.env\n")
        self.assertEqual(
            read(os.path.join(self.unpack(_COMMAND), "DEBIAN/conffiles")),
            "/etc/atoll/island.env\n")

    def test_units_and_configuration_name_flags_that_exist(self):
        root = self.unpack(_SERVICES)
        for relative in _PROGRAMS[1:]:
            program = os.path.basename(relative)
            unit = read(os.path.join(
                root, "usr/lib/systemd/system/%s.service" % program))
            settings = read(os.path.join(
                root, "etc/atoll/%s.env" % program.removeprefix("atoll-")))
            self.assertNotRegex(unit, "@[A-Z]+@")
            command = re.search(r"^ExecStart=/usr/bin/(\S+)((?:.*\\\n)*.*)$",
                                unit, re.M)
            self.assertEqual(command.group(1), program)
            example = re.search(r'^#FLAGS="(.*(?:\\\n#.*)*)"$', settings, re.M)
            given = re.findall(r"--[a-z-]+",
                               command.group(2) + example.group(1))
            self.assertGreater(len(given), 3)
            self.assertEqual(len(given), len(set(given)), program)
            text = debian.run(processes.binary(relative), "--help")
            known = set(re.findall(r"--[a-z-]+", text))
            self.assertEqual(set(given) - known, set(), program)
            required = re.findall(r"(--[a-z-]+) TEXT REQUIRED", text)
            self.assertEqual(set(required) - set(given), set(), program)

    def test_the_island_s_unit_reads_a_join_string_that_root_alone_can(self):
        root = self.unpack(_COMMAND)
        unit = read(os.path.join(
            root, "usr/lib/systemd/system/atoll-island@.service"))
        settings = read(os.path.join(root, "etc/atoll/island.env"))
        string = "/etc/atoll/island/%i.join"
        for line in ("ConditionPathExists=" + string,
                     "LoadCredential=join:" + string,
                     "EnvironmentFile=/etc/atoll/island.env",
                     "DynamicUser=yes", "StateDirectoryMode=0700",
                     "Restart=always"):
            self.assertIn("\n%s\n" % line, unit)
        self.assertIn(string.replace("%i", "RUN"), settings)
        self.assertRegex(unit, r"\nMemoryMax=[1-9][0-9]*%\n")
        text = debian.run(processes.binary(processes.CLI), "join", "--help")
        flags = re.findall(r"--[a-z-]+\b", "".join(
            re.findall(r"^ExecStart=.*", unit, re.M) +
            re.findall(r"^#(?:FLAGS=|  )\S*--.*", settings, re.M)))
        self.assertGreater(len(flags), 3)
        self.assertEqual(
            set(flags) - set(re.findall(r"--[a-z-]+\b", text)), set())
        # As systemd calls the shell.
        script = re.search(r"-c '(.*)'", unit).group(1).replace("$$", "$")
        place = os.path.join(self.place, "credentials")
        os.mkdir(place)
        with open(os.path.join(place, "join"), "w", encoding="ascii") as file:
            file.write("the string")
        fake = os.path.join(place, "atoll")
        with open(fake, "w", encoding="ascii") as file:
            file.write('#!/bin/sh\necho "$*"\ncat\n')
        os.chmod(fake, 0o755)
        done = subprocess.run(
            ["sh", "-c", script.replace("/usr/bin/atoll", fake).replace(
                "%i", "spring"), "atoll", "--memory", "12GB"],
            env={"CREDENTIALS_DIRECTORY": place, "PATH": "/usr/bin:/bin"},
            stdout=subprocess.PIPE, text=True, check=True)
        self.assertEqual(done.stdout, "join - --run=spring --memory 12GB\n"
                         "the string")

    def test_only_programs_of_the_tarball_are_executable(self):
        for name, member in self.members.items():
            below = name.partition("/")[2]
            self.assertEqual((member.uid, member.gid, member.mtime),
                             (0, 0, 1700000000), name)
            executable = member.isdir() or below.startswith("bin/")
            self.assertEqual(member.mode, 0o755 if executable else 0o644, name)
            self.assertTrue(member.isdir() or member.isreg(), name)

    def test_the_tarball_has_each_library_but_glibcs_with_its_licence(self):
        listing = self.listing(_TARBALL)
        names = {p["SPDXID"]: p["name"] for p in listing["packages"]}
        owners = {r["relatedSpdxElement"]: names[r["spdxElementId"]]
                  for r in listing["relationships"]
                  if r["relationshipType"] == "CONTAINS"}
        files = {f["fileName"]: owners[f["SPDXID"]] for f in listing["files"]}
        prefix = os.path.basename(self.unpacked) + "/"
        self.assertEqual(sorted(files), sorted(
            "./" + name.removeprefix(prefix)
            for name, member in self.members.items() if member.isreg()))
        libraries = {name for name in files if name.startswith("./lib/")}
        self.assertIn("./lib/libstdc++.so.6", libraries)
        self.assertIn("./lib/libgcc_s.so.1", libraries)
        for name in libraries:
            self.assertNotEqual(files[name], "libc6", name)
            self.assertIn("./share/doc/%s/copyright" % files[name], files)

    def test_programs_of_the_tarball_load_its_libraries_alone(self):
        # A directory of libraries that are none: whoever looks there fails.
        trap = os.path.join(self.place, "trap")
        os.mkdir(trap)
        lib = os.path.join(self.unpacked, "lib")
        for name in os.listdir(lib):
            with open(os.path.join(trap, name), "w", encoding="ascii"):
                pass
        for relative in _PROGRAMS:
            program = os.path.join(self.unpacked, "bin",
                                   os.path.basename(relative))
            for environment in ({}, {"LD_LIBRARY_PATH": trap}):
                done = subprocess.run([program, "--version"], env=environment,
                                      stdout=subprocess.PIPE, text=True)
                self.assertEqual(done.returncode, 0, program)
                self.assertRegex(done.stdout,
                                 r"^%s \d" % os.path.basename(program))
            needed = debian.parse_ldd(debian.run("ldd", program))
            owners = debian.owners_of(
                os.path.realpath(p) for p in needed.values())
            for name, path in needed.items():
                if os.path.dirname(os.path.abspath(path)) != lib:
                    self.assertEqual(owners[os.path.realpath(path)], "libc6",
                                     name)

    def test_each_deb_has_a_listing_with_the_libraries_packages(self):
        for artifact in (_COMMAND, _SERVICES):
            listing = self.listing(artifact)
            self.assertEqual(
                sorted(f["fileName"] for f in listing["files"]),
                sorted("./" + p for p in self.contained(artifact)))
            self.assertLessEqual({"libc6", "libgrpc29"},
                                 {p["name"] for p in listing["packages"]})


class TarballTest(unittest.TestCase):

    def test_the_newest_glibc_is_found_by_number(self):
        self.assertEqual(tarball.newest_glibc(
            "Name: GLIBC_2.4 Flags\nName: GLIBC_2.34\nName: GLIBCXX_3.4.30\n"
            "Name: GLIBC_PRIVATE\nName: GLIBC_2.2.5\n"), (2, 34))
        self.assertEqual(tarball.newest_glibc("No version information"),
                         (0, 0))

    def test_a_program_for_a_newer_glibc_is_refused(self):
        tarball.check_glibc(["/bin/sh"])
        with mock.patch.object(tarball, "GLIBC_MAX", (2, 3)):
            with self.assertRaisesRegex(debian.ArtifactError,
                                        "/bin/sh needs glibc 2"):
                tarball.check_glibc(["/bin/sh"])

    def test_a_library_with_its_own_search_path_is_refused(self):
        with tempfile.TemporaryDirectory() as root:
            path = os.path.join(root, "library.so")
            shutil.copy(debian.libraries_of(["/bin/ls"])["libselinux.so.1"],
                        path)
            tarball.check_search_path(path)
            subprocess.run(["patchelf", "--set-rpath", "/opt", path],
                           check=True)
            with self.assertRaisesRegex(debian.ArtifactError, "library.so"):
                tarball.check_search_path(path)


if __name__ == "__main__":
    cases.main()
