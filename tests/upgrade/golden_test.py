#!/usr/bin/python3
"""The programs go on with what every older storage format left on disk."""

import glob
import json
import os
import sys

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, "..", "integration")]

from harness import cases  # noqa: E402
from harness import cluster as cluster_module  # noqa: E402
import golden_data  # noqa: E402


class GoldenTest(cluster_module.IntegrationTest):

    def go_on(self, name):
        """Ends the run of golden/NAME.tar.xz on the programs under test."""
        cluster = self.cluster
        archive = os.path.join(_HERE, "golden", name + ".tar.xz")
        expected = golden_data.unpack(archive, cluster.directory)

        golden_data.start_service(cluster)
        state = cluster.run_state()
        self.assertIn(state.run.state, (cluster_module.STARTING,
                                        cluster_module.ACTIVE), state)
        before = expected["rounds"]
        rounds = golden_data.describe_rounds(cluster.rounds())
        self.assertEqual(rounds[:len(before)], json.loads(json.dumps(before)))
        # Pulls the newest version and checks it against its committed digest.
        self.assertTrue(cluster.parameters(
            pinned=cluster.pin(pin_id="cut")))

        golden_data.start_islands(cluster)
        state = cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(
            [f.version for f in state.cut],
            [golden_data.CHANGES["schedule"]["round_count"]])
        sha256 = cluster.parameters_sha256()
        if golden_data.describe_processor() == expected["processor"]:
            self.assertEqual(sha256, expected["parameters_sha256"])
        else:
            # Training rounds differently there; what was committed did not
            # change, as checked above.
            print("%s was made on another kind of processor: the end's bits "
                  "are not compared" % name, flush=True)
        # All have restarted on their own files in the present format.
        for process in ["coordinator"] + golden_data.SERVERS:
            cluster.may_end(process)
            cluster.processes[process].stop()
            cluster.restart(process)
        self.assertEqual(cluster.retry(cluster.parameters_sha256), sha256)

    def test_every_archive_has_a_case(self):
        names = {os.path.basename(path)[:-len(".tar.xz")]
                 for path in glob.glob(os.path.join(_HERE, "golden", "*.xz"))}
        cases_of = {name[len("test_goes_on_from_"):]
                    for name in dir(self) if name.startswith("test_goes_on_")}
        self.assertEqual(names, cases_of)

    def test_goes_on_from_format3(self):
        self.go_on("format3")


if __name__ == "__main__":
    cases.main()
