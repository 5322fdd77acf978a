"""Plays elastic runs of enrolled islands, some of which are hostile.

Every island enrols with a join string. A hostile one then takes the certificate
of its own `atoll join`, and trains and pushes with
tests/benchmarks/quality/hostile_island.
"""

import collections
import glob
import math
import os

from harness import cluster as cluster_module
from harness import run_file
from harness import wait

HOSTILE = "tests/benchmarks/quality/hostile_island"

# `flags`: of hostile_island. `shares`: a share of weight that the hostile
# islands' common token has; 0: each has a token of its own.
Attack = collections.namedtuple("Attack", "flags share", defaults=(0,))

ATTACKS = {
    "nan": Attack(["--attack=nan"]),
    "spike": Attack(["--attack=spike:1e30"]),
    "scale": Attack(["--attack=scale:100"]),
    "seq": Attack(["--skip-seqs=%d" % (1 << 42)]),
    "claim": Attack(["--claim=1e12"]),
    "noise": Attack(["--attack=noise"]),
    "limited": Attack(["--attack=noise"], 0.05),
}

# `loss`: of the newest evaluation; infinite without one, or if it is not
# finite. `named`: hostile islands that GetRunState names. `merged`: merged
# contributions by island.
Result = collections.namedtuple("Result", "loss state named merged reasons")


# The names of enrolled islands begin with this.
ENROLLED = "e-"


def values(honest_count, hostile_count, *changes):
    """A run file: each round needs as many contributions as there are honest
    islands."""
    count = honest_count + hostile_count
    return run_file.merged(run_file.BASE, run_file.ELASTIC, {
        "data": {"data_shard_count": count},
        "schedule": {"island_count_min": count, "min_quorum": honest_count,
                     "grace_window": "2s", "lease_duration": "30s"}}, *changes)


def _token(cluster, *arguments):
    return cluster.run_cli("token", "create", "--run=run", *arguments,
                           check=0).stdout.strip()


def _await_enrolment(cluster, name):
    """The file of its certificate. Gates limit how many enrol at once."""

    def enrolled():
        cluster.check_alive()
        return glob.glob(os.path.join(cluster.directory, name + ".state",
                                      "atoll", "enrolments", "*", "tls.crt"))

    return wait.until(name + " is enrolled", enrolled)[0]


def _take_certificate(cluster, security, name, string):
    """Enrols `name` by `atoll join`, which then dies; returns its certificate.
    """
    cluster.start_volunteer(name, string, arguments=["--island-id=" + name])
    found = _await_enrolment(cluster, name)
    cluster.kill(name)
    return security.certificate(os.path.dirname(found))


def _start_hostile(cluster, security, name, string, attack, data):
    certificate = _take_certificate(cluster, security, name, string)
    cluster.start_island("run", ENROLLED + name, name=name, program=HOSTILE, data=data,
                         arguments=attack.flags + certificate.flags)
    # The run may refuse it until it ends.
    cluster.may_end(name)


def play(cluster, security, gate_dir, run_values, honest_count, hostile_count,
         attack=None, is_bounded=True, timeout=wait.PATIENCE_S):
    """Plays a run to its end, or until it cannot go on."""
    cluster.start_coordinator()
    cluster.start_gate(gate_dir)
    cluster.start_servers(run_values["server_count"])
    changes = {} if is_bounded else {"outer": {"enrolled_norm_factor": 0.0}}
    cluster.create_run(run_file.merged(run_values, changes))
    accept = [] if is_bounded else ["--accept-unbounded"]
    data = run_values["data"]["path"]
    string = _token(cluster, "--uses=%d" % honest_count, *accept)
    for index in range(honest_count):
        name = "volunteer-%d" % index
        cluster.start_volunteer(name, string, arguments=[
            "--data=" + data, "--island-id=honest-%d" % index])
        _await_enrolment(cluster, name)
    shared = (_token(cluster, "--uses=%d" % hostile_count,
                     "--weight-share=%g" % attack.share, *accept)
              if attack and attack.share else None)
    for index in range(hostile_count):
        _start_hostile(cluster, security, "volunteer-h%d" % index,
                       shared or _token(cluster, *accept), attack, data)
    return _await(cluster, honest_count, run_values["schedule"]["round_count"],
                  timeout)


def _await(cluster, honest_count, last_version, timeout):
    named = set()
    reasons = {}

    def ended():
        state = cluster.run_state()
        for out in state.sitting_out:
            named.add(out.island_id)
            reasons[out.island_id] = out.reason
        is_over = (state.run.state == cluster_module.COMPLETED and
                   state.evaluation.version == last_version)
        # Islands that hold a broken model wait, for ever.
        is_broken = len(state.hindered_islands) >= honest_count
        is_paused = state.run.state == cluster_module.PAUSED
        return state if is_over or is_broken or is_paused else None

    state = wait.until("the run is evaluated, broken or paused", ended, timeout)
    merged = collections.Counter()
    for entry in cluster.rounds():
        for contribution in entry.contributions:
            if contribution.outcome == cluster_module.MERGED:
                merged[contribution.island_id] += 1
    loss = (state.evaluation.loss
            if state.evaluation.version == last_version else math.inf)
    return Result(loss if math.isfinite(loss) else math.inf, state, named,
                  merged, reasons)
