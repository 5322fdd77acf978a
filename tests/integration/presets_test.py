#!/usr/bin/python3
"""Every preset, from its name in a run file to a model that has learnt.

The model is smaller and the rounds are fewer than the preset's; everything else
is the preset.
"""

import json
import math
import re
import unittest

from harness import cases
from harness import cluster as cluster_module
from harness import processes
from harness import run_file
from harness import wait

# Enough layers for several fragments.
MODEL = dict(run_file.BASE["model"], layer_count=4)

# Less work; the exchange stays the preset's.
CHANGES = {
    "async": {"schedule": {"round_count": 24}},
    "decoupled": {"schedule": {"round_count": 4}},
    "diloco": {"data": {"format": "bytes"},
               "schedule": {"inner_step_count": 10, "max_ahead_steps": 5,
                            "round_count": 3}},
    "eager": {"schedule": {"round_count": 4}},
    "fedavg": {"schedule": {"round_count": 6}},
    "fedopt": {"schedule": {"round_count": 6}},
    "laptop": {"schedule": {"round_count": 3}},
    "sparseloco": {"schedule": {"round_count": 4}},
    "streaming": {"schedule": {"round_count": 4}},
    "volunteers": {"schedule": {"inner_step_count": 20, "max_ahead_steps": 5,
                                "round_count": 4}},
}

# Nats a byte of a uniform guess.
UNIFORM = math.log(256)


class PresetRunTest(cluster_module.IntegrationTest):

    def run_preset(self, name):
        cluster = self.cluster
        cluster.start_coordinator()
        values = run_file.merged(
            {"preset": name, "model": MODEL, "data": {"path": self.text},
             "inner": {"batch_size": 2, "warmup_step_count": 2},
             "evaluation": {"every_round_count": 1, "batch_count": 2}},
            CHANGES[name])
        path = cluster.write_run_file(values)
        created = cluster.run_cli("run", "create", path, "--run-id", "run",
                                  "-o", "json", check=0)
        self.assertIn("run", created.stdout)
        spec = cluster.runs.GetRun(run_id="run").run.spec
        cluster.start_servers(spec.server_count)
        cluster.wait_state(cluster_module.ACTIVE)
        cluster.pin(pin_id="audit", keep_bytes_max=1 << 34)
        # A client with its own data passes its path.
        own = None if spec.data.fingerprint else self.text
        cluster.start_islands(count=spec.schedule.island_count_min, data=own)
        cluster.wait_state(cluster_module.COMPLETED)
        rounds = self.assert_rounds_whole(cluster, values)
        fragments = {r.fragment for r in rounds}
        self.assertEqual(len(fragments), max(1, spec.layout.fragment_count))
        self.assertEqual(len(rounds), spec.schedule.round_count *
                         len(fragments))
        # An island may report the evaluation after the last commit.
        loss = wait.until("an evaluation is there",
                          lambda: cluster.run_state().evaluation.loss)
        self.assertLess(loss, UNIFORM - 0.1)
        # G5: recomputes the same versions from the kept contributions.
        done = cluster.run_cli("replay", "run", "--from", "audit", "-o", "json",
                               check=0)
        replayed = json.loads(done.stdout)["data"]
        self.assertEqual(replayed["commit_count"], len(rounds))
        self.assertEqual(replayed["agree_count"], len(rounds))


def _case(name):
    def test(self):
        self.run_preset(name)
    return test


for _name in sorted(CHANGES):
    setattr(PresetRunTest, "test_%s_trains" % _name, _case(_name))


class PresetNamesTest(unittest.TestCase):

    def test_all_presets_are_run_here(self):
        done = processes.run_cli("run", "create", "--help", check=0)
        told = re.search(r"or a preset: ([a-z, ]+)\.",
                         " ".join(done.stdout.split()))
        self.assertIsNotNone(told, done.stdout)
        self.assertEqual(told.group(1).split(", "), sorted(CHANGES))


if __name__ == "__main__":
    cases.main()
