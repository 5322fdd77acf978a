#!/usr/bin/python3
"""The wheel: what is in it, its bytes, and a program that imports it."""

import ast
import base64
import csv
import hashlib
import os
import subprocess
import sys
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "testing"))

import cases  # noqa: E402
import make_wheel  # noqa: E402

import atoll  # noqa: E402

_NAME = "atoll-%s-py3-none-any.whl" % atoll.__version__


class WheelTest(cases.FolderCase):

    def make(self, folder, paths):
        os.makedirs(self.path(folder))
        wheel = self.path(folder, _NAME)
        make_wheel.main(wheel, *paths)
        return wheel

    def sources(self):
        found = []
        for folder in (os.path.join(cases.PACKAGE, "atoll"),
                       os.path.join(cases.TREE, "proto", "atoll", "v1")):
            found += [os.path.join(folder, name) for name in sorted(
                os.listdir(folder))
                if name.endswith((".py", ".typed", ".proto"))]
        return found

    def elsewhere(self, path):
        return self.path("elsewhere", "atoll", path.rpartition("atoll/")[2])

    def bytes_of(self, path):
        with open(path, "rb") as file:
            return file.read()

    def test_two_builds_have_the_same_bytes(self):
        one = self.make("one", self.sources())
        for path in self.sources():
            os.makedirs(os.path.dirname(self.elsewhere(path)), exist_ok=True)
            with open(self.elsewhere(path), "wb") as file:
                file.write(self.bytes_of(path))
        other = self.make("other", reversed([
            self.elsewhere(path) for path in self.sources()]))
        self.assertEqual(self.bytes_of(one), self.bytes_of(other))

    def test_the_build_names_every_file_of_the_package(self):
        built = os.path.join(cases.PACKAGE, _NAME)
        if not os.path.exists(built):
            self.skipTest("Bazel has not built it")
        self.assertEqual(self.bytes_of(built),
                         self.bytes_of(self.make("one", self.sources())))

    def test_its_record_has_the_digest_of_every_file(self):
        with zipfile.ZipFile(self.make("one", self.sources())) as archive:
            names = archive.namelist()
            record, = [n for n in names if n.endswith("/RECORD")]
            rows = list(csv.reader(
                archive.read(record).decode().splitlines()))
            self.assertEqual(sorted(names), sorted(row[0] for row in rows))
            for name, digest, size in rows:
                if name == record:
                    continue
                data = archive.read(name)
                self.assertEqual(digest, "sha256=" + base64.urlsafe_b64encode(
                    hashlib.sha256(data).digest()).rstrip(b"=").decode())
                self.assertEqual(int(size), len(data))

    def test_a_program_imports_it_without_torch(self):
        wheel = self.make("one", self.sources())
        out = self.run_with(wheel, (
            "import sys, atoll; assert 'torch' not in sys.modules; "
            "print(atoll.__file__, atoll.__version__, atoll.Island)"))
        self.assertTrue(out.startswith(wheel), out)

    def run_with(self, wheel, code):
        return subprocess.run([sys.executable, "-c", code], check=True,
                              env={**os.environ, "PYTHONPATH": wheel},
                              cwd=self.path("one"),
                              stdout=subprocess.PIPE, text=True).stdout

    def test_the_stubs_import_beside_the_package(self):
        try:
            import grpc  # pylint: disable=import-outside-toplevel
        except ImportError:
            self.skipTest("grpcio is not here")
        del grpc
        out = self.run_with(self.make("one", self.sources()), (
            "import atoll.v1.run_pb2, atoll.v1.run_service_pb2_grpc as r\n"
            "import atoll.v1.training_state_service_pb2_grpc as t\n"
            "import atoll.v1.parameter_service_pb2_grpc\n"
            "import atoll.v1.island_service_pb2_grpc\n"
            "run = atoll.v1.run_pb2.Run(run_id='spring')\n"
            "print(run.run_id, r.RunServiceStub, "
            "t.TrainingStateServiceStub, atoll.Island)"))
        self.assertTrue(out.startswith("spring "), out)

    def test_the_package_needs_no_protobuf(self):
        out = self.run_with(self.make("one", self.sources()), (
            "import sys, atoll\n"
            "print([m for m in sys.modules if m.startswith(('google', 'grpc',"
            " 'atoll.v1'))])"))
        self.assertEqual(out, "[]\n")

    def test_every_module_has_the_syntax_of_python_3_10(self):
        with zipfile.ZipFile(self.make("one", self.sources())) as archive:
            for name in archive.namelist():
                if name.endswith(".py"):
                    ast.parse(archive.read(name), name,
                              feature_version=(3, 10))
            metadata, = [n for n in archive.namelist()
                         if n.endswith("/METADATA")]
            self.assertIn("\nRequires-Python: >=3.10\n",
                          archive.read(metadata).decode())

    def test_another_version_than_the_name_says_is_refused(self):
        with self.assertRaises(SystemExit):
            make_wheel.main(self.path("atoll-9.9-py3-none-any.whl"),
                            *self.sources())


if __name__ == "__main__":
    cases.main()
