"""A strict run whose programs are replaced one after the other.

No island leaves: its process is killed, so that the strict run waits for it.
The coordinator and servers are stopped as an operator stops them.
"""

from harness import cluster as cluster_module
from harness import wait

COORDINATOR = ["coordinator"]
SERVERS = ["server-0", "server-1"]
ISLANDS = ["island-0", "island-1"]
ALL = COORDINATOR + SERVERS + ISLANDS

# A round takes long enough that the run does not end before all are replaced.
CHANGES = {
    "data": {"data_shard_count": 2},
    "schedule": {"inner_step_count": 12, "round_count": 240,
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
    before = cluster.run_state()
    assert before.run.state == cluster_module.ACTIVE, (
        "the run has ended before %s is replaced: give it more rounds" % name)
    cluster.use_programs(programs, name)
    if name in ISLANDS:
        cluster.kill(name)
    else:
        cluster.may_end(name)
        cluster.processes[name].stop()
    cluster.restart(name)
    # A commit that was under way at the stop proves nothing; the next one does.
    cluster.wait_commits(cluster.run_state().commit_seq + 2)


def undisturbed(cluster, values):
    """The SHA-256 of the run on the programs under test."""
    start(cluster, values, None)
    cluster.wait_state(cluster_module.COMPLETED)
    return cluster.parameters_sha256()
