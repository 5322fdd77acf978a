#!/usr/bin/python3
"""The image of the programs under test: twice the same bytes, and a short run.

The run uses the unpacked image as a container's runtime does (contained.py), so
it needs root and a mount namespace of its own: the script restarts itself under
`unshare --mount`. Without these rights the cases fail; none is skipped.

If the programs under test have CUDA, the image is without NVIDIA's libraries:
they open these only for a device.
"""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile

_HERE = os.path.dirname(os.path.abspath(__file__))
_TREE = os.path.join(_HERE, "..", "..")
sys.path.insert(0, os.path.join(_HERE, "..", "integration"))

from harness import cases  # noqa: E402
from harness import cluster as cluster_module  # noqa: E402
from harness import processes  # noqa: E402

_INSIDE = "ATOLL_TEST_MOUNT_NAMESPACE"
_PROGRAMS = (processes.CLI, processes.COORDINATOR, processes.GATE,
             processes.SERVER)
_SBOM = "usr/share/atoll/sbom.spdx.json"
# The prefix of a command that runs a program as a container.
_CONTAINED = (sys.executable, "-B", os.path.join(_HERE, "contained.py"))
# A higher level takes longer, and makes the image only smaller.
_MAKE = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import make_image
make_image.oci.entries.LEVEL = 1
make_image.main()
"""


def build(directory):
    """Builds an image from copies in `directory`. Returns (digest, archive,
    what it prints about sizes)."""
    tree = os.path.join(directory, "tree")
    programs = os.path.join(directory, "programs")
    os.makedirs(os.path.join(tree, "base", "obs"))
    os.makedirs(programs)
    with open(os.path.join(tree, "base/obs/version.h"), "w",
              encoding="ascii") as file:
        file.write('constexpr char kProgramVersion[] = "1.2.3";\n')
    for folder in ("artifacts", "image"):
        shutil.copytree(os.path.join(_TREE, "deploy", folder),
                        os.path.join(tree, "deploy", folder))
    for relative in _PROGRAMS:
        shutil.copy(processes.binary(relative), programs)
    archive = os.path.join(directory, "image.tar")
    done = subprocess.run(
        [sys.executable, "-B", "-c", _MAKE, os.path.join(tree, "deploy/image"),
         "--bin", programs, "--tree", tree, "--out", archive,
         "--revision", "none", "--epoch", "1700000000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=dict(os.environ, TMPDIR=directory))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), archive, done.stderr


def blob(archive, descriptor):
    return archive.extractfile(
        "blobs/" + descriptor["digest"].replace(":", "/"))


def unpack(path, root):
    """Unpacks the layers into `root`. Returns (index, manifest, config)."""
    with tarfile.open(path) as archive:
        index = json.load(archive.extractfile("index.json"))
        manifest = json.load(blob(archive, index["manifests"][0]))
        config = json.load(blob(archive, manifest["config"]))
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=blob(archive, layer),
                              mode="r|*") as tar:
                tar.extractall(root)
    return index, manifest, config


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def mount_root(root, volume):
    """Mounts what a runtime mounts: a read-only root, /proc, /dev and /tmp, and
    the directory `volume` at its own path."""
    mount("--bind", root, root)
    os.makedirs(root + volume, exist_ok=True)
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", root + "/tmp")
    os.makedirs(root + volume, exist_ok=True)
    mount("--bind", volume, root + volume)
    mount("-t", "proc", "-o", "ro", "proc", root + "/proc")
    mount("-t", "tmpfs", "tmpfs", root + "/dev")
    for name in ("null", "zero", "random", "urandom"):
        with open(os.path.join(root, "dev", name), "wb"):
            pass
        mount("--bind", "/dev/" + name, os.path.join(root, "dev", name))
    mount("-o", "remount,bind,ro", root)


class ImageTest(cluster_module.IntegrationTest):

    @classmethod
    def setUpClass(cls):
        if not os.environ.get(_INSIDE):
            raise AssertionError("this test needs root and `unshare --mount`, "
                                 "which are not permitted here")
        super().setUpClass()
        # Readable for the image's user.
        os.chmod(cls.root, 0o755)
        cls.place = tempfile.mkdtemp(prefix="image-",
                                     dir=os.environ.get("TEST_TMPDIR"))
        cls.addClassCleanup(shutil.rmtree, cls.place, ignore_errors=True)
        cls.digest, archive, cls.said = build(os.path.join(cls.place, "one"))
        cls.image = os.path.join(cls.place, "root")
        os.makedirs(cls.image)
        cls.index, cls.manifest, cls.config = unpack(archive, cls.image)
        os.unlink(archive)
        # Before mounts add to it: {path: mode} of all that the image has.
        cls.paths = {
            os.path.relpath(os.path.join(folder, name), cls.image):
                os.lstat(os.path.join(folder, name)).st_mode
            for folder, folders, names in os.walk(cls.image)
            for name in folders + names}
        mount_root(cls.image, cls.root)
        cls.addClassCleanup(subprocess.run,
                            ["umount", "--recursive", cls.image])

    @property
    def contained(self):
        return _CONTAINED + (self.image,)

    def test_a_build_in_another_directory_has_the_same_digest(self):
        place = os.path.join(self.place, "another", "deeper")
        digest, archive, _ = build(place)
        os.unlink(archive)
        self.assertEqual(digest, self.digest)
        self.assertEqual(digest, self.index["manifests"][0]["digest"])

    def test_it_downloads_at_most_80_megabytes(self):
        size = sum(layer["size"] for layer in self.manifest["layers"])
        print("%.1f MB compressed\n%s" % (size / 1e6, self.said))
        self.assertGreater(size, 5e6)
        self.assertLessEqual(size, 80e6)

    def test_only_our_programs_and_libraries_are_executable(self):
        programs = {"usr/bin/atoll", "usr/bin/atoll-coordinator",
                    "usr/bin/atoll-gate", "usr/bin/atoll-server"}
        executable = {path for path, mode in self.paths.items()
                      if stat.S_ISREG(mode) and mode & 0o111}
        self.assertLessEqual(programs, executable)
        for path in executable - programs:
            self.assertRegex(path, r"^usr/lib/[^/]+/(lib|ld-)[^/]*\.so")
        special = [path for path, mode in self.paths.items()
                   if not stat.S_ISLNK(mode) and
                   (mode & 0o6000 or mode & 0o002) and path != "tmp"]
        self.assertEqual(special, [])
        self.assertEqual(stat.S_IMODE(self.paths["tmp"]), 0o1777)

    def test_the_listing_has_each_file_with_its_package_and_digest(self):
        with open(os.path.join(self.image, _SBOM), encoding="utf-8") as file:
            listing = json.load(file)
        names = {p["SPDXID"]: (p["name"], p["versionInfo"])
                 for p in listing["packages"]}
        owners = {r["relatedSpdxElement"]: names[r["spdxElementId"]]
                  for r in listing["relationships"]
                  if r["relationshipType"] == "CONTAINS"}
        files = {f["fileName"]: f for f in listing["files"]}
        self.assertEqual(sorted(files), sorted(
            "./" + path for path, mode in self.paths.items()
            if stat.S_ISREG(mode) and path != _SBOM))
        for name, file in files.items():
            self.assertIn(file["SPDXID"], owners, name)
            with open(os.path.join(self.image, name), "rb") as data:
                digest = hashlib.sha256()
                while piece := data.read(1 << 20):
                    digest.update(piece)
            self.assertEqual(file["checksums"][1]["checksumValue"],
                             digest.hexdigest(), name)
        self.assertIn("libc6", {name for name, _ in owners.values()})
        self.assertTrue(all(version for _, version in owners.values()))

    def test_every_debian_package_comes_with_its_licence(self):
        with open(os.path.join(self.image, _SBOM), encoding="utf-8") as file:
            listing = json.load(file)
        for package in listing["packages"]:
            if "supplier" in package:
                self.assertIn("usr/share/doc/%s/copyright" % package["name"],
                              self.paths)

    def test_its_settings_name_the_user_and_the_command(self):
        settings = self.config["config"]
        self.assertEqual(settings["User"], "65532:65532")
        self.assertEqual(settings["Cmd"], ["atoll", "--help"])
        self.assertNotIn("Entrypoint", settings)
        self.assertEqual(
            settings["Labels"]["org.opencontainers.image.version"], "1.2.3")
        done = subprocess.run(self.contained + tuple(settings["Cmd"]),
                              stdout=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0)
        self.assertIn("join", done.stdout)

    def assert_confined(self, process):
        with open("/proc/%d/status" % process.pid, encoding="ascii") as file:
            status = dict(line.split(":\t", 1)
                          for line in file.read().splitlines() if ":\t" in line)
        self.assertEqual(status["Uid"].split(), ["65532"] * 4)
        self.assertEqual(status["Gid"].split(), ["65532"] * 4)
        self.assertEqual(status["NoNewPrivs"], "1")
        for kind in ("Prm", "Eff", "Bnd", "Amb"):
            self.assertEqual(int(status["Cap" + kind], 16), 0, kind)
        root = os.statvfs("/proc/%d/root" % process.pid)
        self.assertTrue(root.f_flag & os.ST_RDONLY)

    def test_a_run_through_it_has_the_bits_after_a_death_of_each(self):
        values = self.run_values({
            "schedule": {"round_count": 60, "island_count_min": 2,
                         "min_quorum": 2},
            "data": {"data_shard_count": 2}})
        islands = ["island-0", "island-1"]
        reference = self.new_cluster("reference")
        expected = self.run_strict(reference, values, islands=islands)
        spec = reference.spec()
        reference.close()

        cluster = self.cluster
        # Where its user creates directories.
        os.chmod(cluster.directory, 0o777)
        start = {"coordinator": lambda: cluster.start_coordinator(
            prefix=self.contained)}
        for name in ("server-0", "server-1"):
            start[name] = lambda name=name: cluster.start_server(
                name, prefix=self.contained)
        for name in islands:
            start[name] = lambda name=name: cluster.start_island(
                "run", name, prefix=self.contained)
        for name in ("coordinator", "server-0", "server-1"):
            start[name]()
        cluster.create_run_of(spec)
        for name in islands:
            start[name]()
        cluster.wait_commits(1)
        for process in cluster.processes.values():
            self.assert_confined(process)
        for victim in sorted(start):
            commits = cluster.run_state().commit_seq
            self.assertLess(commits, 60, "the run ends before the deaths")
            cluster.kill(victim)
            start[victim]()
            cluster.wait_commits(commits + 1)
        self.assertEqual(self.finish_strict(cluster, values), expected)


def _enter():
    if os.environ.get(_INSIDE):
        return
    probe = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
             "mount -t tmpfs -o size=1m tmpfs /mnt"]
    if (os.getuid() != 0 or
            subprocess.run(probe, stderr=subprocess.DEVNULL).returncode != 0):
        return
    os.environ[_INSIDE] = "1"
    os.execvp("unshare", ["unshare", "--mount", "--propagation", "private",
                          sys.executable, "-B"] + sys.argv)


if __name__ == "__main__":
    _enter()
    cases.main()
