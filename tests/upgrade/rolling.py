"""A strict run whose programs are replaced one after the other.

No island leaves: its process is killed, so that the strict run waits for it.
The coordinator and servers are stopped as an operator stops them.
"""

from harness import cluster as cluster_module
from harness import run_file
from harness import wait

COORDINATOR = ["coordinator"]
SERVERS = ["server-0", "server-1"]
ISLANDS = ["island-0", "island-1"]
ALL = COORDINATOR + SERVERS + ISLANDS

# The run has no end that a slow machine could miss: the test pauses it. So the
# learning rate must not depend on the number of rounds.
CHANGES = {
    "data": {"data_shard_count": 2},
    "inner": {"final_learning_rate_fraction": 1.0},
    "schedule": {"inner_step_count": 12, "round_count": 1000000,
                 "island_count_min": 2, "min_quorum": 2},
    "evaluation": {"every_round_count": 0},
}


def start(cluster, values, programs):
    """Starts two servers, the run and two islands, which join in order."""
    cluster.use_programs(programs, *ALL)
    cluster.start_coordinator()
    for name in SERVERS:
        cluster.start_server(name)
    cluster.create_run(values)
    for index, name in enumerate(ISLANDS):
        cluster.start_island("run", name)
        wait.until("%s has joined" % name,
                   lambda: len(cluster.islands()) > index)


def replace(cluster, name, programs):
    """Replaces the process `name` while the run goes on; returns once the new
    one has taken part in a commit."""
    cluster.use_programs(programs, name)
    if name in ISLANDS:
        cluster.kill(name)
    else:
        cluster.may_end(name)
        cluster.processes[name].stop()
    cluster.restart(name)
    # A commit that was under way at the stop proves nothing; the next one does.
    cluster.wait_commits(cluster.run_state().commit_seq + 2)


def pause(cluster, values):
    """Pauses the run. Returns its values, with the rounds that it committed.

    A paused run still commits what was sealed before.
    """
    cluster.runs.PauseRun(run_id="run")
    cluster.wait_state(cluster_module.PAUSED)

    def settled():
        state = cluster.run_state()
        return None if state.sealed_rounds else state

    count = wait.until("sealed rounds are committed", settled).commit_seq
    return run_file.merged(values, {"schedule": {"round_count": count}})


def undisturbed(cluster, values):
    """The SHA-256 of the run on the programs under test."""
    start(cluster, values, None)
    cluster.wait_state(cluster_module.COMPLETED)
    return cluster.parameters_sha256()
