#!/usr/bin/python3
"""The writer of images, on toy contents."""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zlib

_HERE = os.path.dirname(os.path.abspath(__file__))
_DEPLOY = os.path.join(_HERE, "..", "..", "deploy")
_IMAGE = os.path.join(_DEPLOY, "image")
sys.path[:0] = [os.path.join(_HERE, "..", "integration"), _IMAGE,
                os.path.join(_DEPLOY, "artifacts")]

from harness import cases  # noqa: E402
import contents  # noqa: E402
import debian  # noqa: E402
import entries  # noqa: E402
import oci  # noqa: E402
import programs  # noqa: E402
import sbom  # noqa: E402

_SETTINGS = {"Cmd": ["one"], "Labels": {"title": "toy"}}


def toy(order=1):
    toys = {
        "usr/bin/one": entries.Entry(mode=0o755, data=b"program" * 1000,
                                 package="toy"),
        "etc/two": entries.Entry(data=b"text", package="other"),
        "lib": entries.Entry(link="usr/lib"),
        "tmp": entries.directory(0o1777),
    }
    return dict(sorted(toys.items())[::order])


class WriterTest(unittest.TestCase):

    def setUp(self):
        self.root = tempfile.TemporaryDirectory()
        self.addCleanup(self.root.cleanup)

    def write(self, name, contained, compress=True, mtime=1000):
        path = os.path.join(self.root.name, name)
        layer = oci.write_layer("toy", contained, mtime, path + ".layer",
                                compress)
        digest = oci.write_archive([layer], _SETTINGS, "amd64", "now",
                                   "toy:1.0", mtime, path)
        return layer, digest, path

    def blob(self, path, digest):
        with tarfile.open(path) as archive:
            return archive.extractfile(
                "blobs/" + digest.replace(":", "/")).read()

    def test_the_order_of_entries_and_the_directory_change_no_byte(self):
        os.mkdir(os.path.join(self.root.name, "deeper"))
        one, digest, path = self.write("one.tar", toy())
        other, other_digest, other_path = self.write("deeper/o.tar", toy(-1))
        self.assertEqual(one.digest, other.digest)
        self.assertEqual(digest, other_digest)
        with open(path, "rb") as a, open(other_path, "rb") as b:
            self.assertEqual(a.read(), b.read())

    def test_another_byte_and_another_time_give_another_digest(self):
        changed = dict(toy(), **{"etc/two": entries.Entry(data=b"Text")})
        digests = {self.write("a.tar", toy())[1],
                   self.write("b.tar", changed)[1],
                   self.write("c.tar", toy(), mtime=1001)[1]}
        self.assertEqual(len(digests), 3)

    def test_every_blob_has_the_digest_and_the_size_that_name_it(self):
        for compress in (True, False):
            layer, digest, path = self.write("a.tar", toy(), compress)
            data = self.blob(path, digest)
            self.assertEqual("sha256:" + hashlib.sha256(data).hexdigest(),
                             digest)
            manifest = json.loads(data)
            for part in [manifest["config"]] + manifest["layers"]:
                blob = self.blob(path, part["digest"])
                self.assertEqual(len(blob), part["size"])
                self.assertEqual(
                    "sha256:" + hashlib.sha256(blob).hexdigest(),
                    part["digest"])
            plain = blob
            if compress:
                # Bytes 4 to 8 are the time: none.
                self.assertEqual(blob[:10], b"\x1f\x8b\x08\0\0\0\0\0\0\xff")
                plain = zlib.decompress(blob, 16 + zlib.MAX_WBITS)
            self.assertEqual(
                "sha256:" + hashlib.sha256(plain).hexdigest(), layer.diff_id)
            config = json.loads(self.blob(path, manifest["config"]["digest"]))
            self.assertEqual(config["rootfs"]["diff_ids"], [layer.diff_id])

    def test_a_layer_has_roots_entries_with_their_modes_and_parents(self):
        _, _, path = self.write("a.tar", toy(), compress=False)
        layer = path + ".layer"
        with tarfile.open(layer) as tar:
            members = {m.name: m for m in tar.getmembers()}
            self.assertEqual(tar.extractfile("etc/two").read(), b"text")
        self.assertEqual(sorted(members), ["etc", "etc/two", "lib", "tmp",
                                           "usr", "usr/bin", "usr/bin/one"])
        for member in members.values():
            self.assertEqual((member.uid, member.gid, member.mtime),
                             (0, 0, 1000))
        self.assertEqual(members["tmp"].mode, 0o1777)
        self.assertEqual(members["usr/bin/one"].mode, 0o755)
        self.assertEqual(members["lib"].linkname, "usr/lib")


class ListingTest(unittest.TestCase):

    def listing(self, known):
        return json.loads(sbom.document(
            "toy:1.0", "r", "now", "amd64",
            [debian.Package("toy", "1.0", is_debian=False)] + known, toy()))

    def test_every_file_is_listed_with_its_package_and_digest(self):
        known = [debian.Package("other", "1:2.0+b1")]
        document = self.listing(known)
        self.assertEqual([f["fileName"] for f in document["files"]],
                         ["./etc/two", "./usr/bin/one"])
        self.assertEqual(document["files"][0]["checksums"][1], {
            "algorithm": "SHA256",
            "checksumValue": hashlib.sha256(b"text").hexdigest()})
        self.assertIn({"spdxElementId": "SPDXRef-Package-other",
                       "relationshipType": "CONTAINS",
                       "relatedSpdxElement": "SPDXRef-File-etc-two"},
                      document["relationships"])
        self.assertEqual(
            document["packages"][1]["externalRefs"][0]["referenceLocator"],
            "pkg:deb/debian/other@1%3A2.0%2Bb1?arch=amd64")

    def test_a_file_of_an_unlisted_package_is_a_bug(self):
        with self.assertRaises(AssertionError):
            self.listing([])


class PackagesTest(unittest.TestCase):

    def test_libraries_are_read_from_ldd_without_kernel_and_loader(self):
        self.assertEqual(debian.parse_ldd(
            "\tlinux-vdso.so.1 (0x00007ffd)\n"
            "\tlibm.so.6 => /lib/x/libm.so.6 (0x00007f)\n"
            "\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n"),
            {"libm.so.6": "/lib/x/libm.so.6"})

    def test_a_missing_library_is_named(self):
        with self.assertRaisesRegex(debian.ArtifactError, "libgone.so.1"):
            debian.parse_ldd("\tlibgone.so.1 => not found\n")

    def test_owners_lose_their_architecture_and_diversions_are_no_owners(self):
        self.assertEqual(debian.parse_dpkg_search(
            "diversion by a from: /lib/x\n"
            "libc6:amd64: /lib/x/libc.so.6\n"
            "one, two:amd64: /usr/share/both\n"),
            {"/lib/x/libc.so.6": "libc6", "/usr/share/both": "one"})

    def test_owners_are_found_under_the_path_before_the_merge_of_lib(self):
        libc = debian.libraries_of(["/bin/sh"])["libc.so.6"]
        self.assertEqual(debian.owners_of([libc, "/nowhere"]),
                         {libc: "libc6"})

    def test_an_absent_package_is_an_error_that_says_what_to_do(self):
        with self.assertRaisesRegex(debian.ArtifactError,
                                    "no-such-package.*install_packages"):
            debian.installed("no-such-package")


class ContentsTest(unittest.TestCase):

    def setUp(self):
        self.tree = tempfile.TemporaryDirectory()
        self.addCleanup(self.tree.cleanup)

    def write(self, path, text):
        path = os.path.join(self.tree.name, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def test_text_is_documents_and_headers_one_file_a_folder(self):
        self.write("base/DESIGN.md", "design")
        self.write("base/io/b.h", "b")
        self.write("base/io/a.proto", "a")
        self.write("base/io/a.cc", "code")
        self.write("tests/testdata/foreign.md", "foreign")
        self.write("bazel-out/x.h", "built")
        self.assertEqual(contents.text_of(self.tree.name),
                         {"base.txt": b"design", "base-io.txt": b"ab"})

    def test_a_tree_without_documents_is_an_error(self):
        with self.assertRaisesRegex(debian.ArtifactError, "source tree"):
            contents.text(self.tree.name, "toy")

    def test_the_version_is_the_programs(self):
        self.write("base/obs/version.h",
                   'inline constexpr char kProgramVersion[] = "1.2.3";\n')
        self.assertEqual(programs.version_of(self.tree.name), "1.2.3")

    def test_certificates_are_those_of_the_package(self):
        bundle = contents.certificates()["etc/ssl/certs/ca-certificates.crt"]
        self.assertGreater(bundle.data.count(b"BEGIN CERTIFICATE"), 50)


class BuildTest(unittest.TestCase):

    def build(self, *arguments):
        return subprocess.run(
            ["/bin/bash", os.path.join(_IMAGE, "build.sh"), *arguments],
            env={"PATH": "/nowhere"}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)

    def test_a_push_without_skopeo_says_what_to_install(self):
        done = self.build("--push", "registry.example/atoll:1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("apt-get install skopeo", done.stderr)


if __name__ == "__main__":
    cases.main()
