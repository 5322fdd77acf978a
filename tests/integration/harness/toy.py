"""A run of a few tensors for islands in Python.

The coordinator and the servers know nothing of models, so any layout works. A
round takes milliseconds, and the test controls every push.
"""

from harness import run_file

TENSORS = [
    # Four blocks, the last short; a tensor shorter than a block; one element.
    # Two shards hold two and four of these six blocks.
    {"name": "embedding", "shape": [150, 100], "dtype": 1, "tensor_class": 2,
     "fragment": 0, "init": {"kind": 2, "value": 0.02}},
    {"name": "layer.weight", "shape": [30, 31], "dtype": 1, "tensor_class": 1,
     "fragment": 0, "init": {"kind": 2, "value": 0.1}},
    {"name": "norm.gain", "shape": [1], "dtype": 1, "tensor_class": 3,
     "fragment": 0, "init": {"kind": 1, "value": 1.0}},
]

SPEC = {
    "layout": {"tensors": TENSORS, "fragment_count": 1},
    "init": {"seed": 7},
    "model": {
        "architecture": "llama", "vocab_size": 150, "hidden_size": 100,
        "intermediate_size": 100, "layer_count": 1, "head_count": 1,
        "kv_head_count": 1, "sequence_length": 16, "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
    },
    "inner": {
        "optimizer": 1, "learning_rate": 0.1, "batch_size": 2,
        "final_learning_rate_fraction": 1.0, "beta1": 0.9, "beta2": 0.95,
        "epsilon": 1e-8, "seed": 1,
    },
    # theta = theta - mean(g): the result of a merge is easy to compute.
    "outer": {"optimizer": 1, "learning_rate": 1.0, "weighting": 1},
    "schedule": {
        "timing": 1, "inner_step_count": 4, "round_count": 3,
        "island_count_min": 2, "min_quorum": 2,
        # Islands in Python send no heartbeat.
        "lease_duration": {"seconds": 600},
    },
    # Shared data: islands in Python claim to see it.
    "data": {"format": 1, "path": "/nowhere", "data_shard_count": 4,
             "fingerprint": "ab" * 32, "seed": 1},
    "evaluation": {"every_round_count": 0, "batch_count": 1},
    "durability": 2,
    "server_count": 2,
}

ELASTIC_SCHEDULE = {
    "timing": 2, "min_quorum": 1, "grace_window": {"nanos": 100_000_000},
    "round_count": 1000,
}


def create(cluster, *changes, run_id="run", **call):
    """Creates a toy run with nested changes to SPEC; returns the Run."""
    spec = run_file.merged(SPEC, *changes)
    return cluster.retry(cluster.runs.CreateRun, run_id=run_id, spec=spec,
                         **call).run


def start(cluster, *changes, run_id="run", island_count=2, server_count=2):
    """Starts a coordinator, servers and a run; returns its ready islands."""
    if "coordinator" not in cluster.processes:
        cluster.start_coordinator()
        cluster.start_servers(server_count)
    create(cluster, *changes, {"server_count": server_count}, run_id=run_id)
    cluster.wait_state(2, run_id)
    members = [cluster.join(run_id, "python-%d" % i)
               for i in range(island_count)]
    for member in members:
        member.ready()
    return members


def gradients(members, version, seed):
    """One random contribution of each member, the same for the same seed."""
    made = []
    for member in members:
        values = member.random_values("%s %d %d" % (seed, version,
                                                    member.slot))
        made.append(member.contribution(values, version))
    return made


def play_round(members, version, seed, ready=True):
    """Every member pushes a random contribution; waits for the commit."""
    for member in members:
        member.wait_open(version)
    for contribution in gradients(members, version, seed):
        contribution.push()
    for member in members:
        member.wait_version(version + 1)
        if ready:
            member.ready()


def play(cluster, members, seed, round_count=3, run_id="run"):
    for version in range(round_count):
        play_round(members, version, seed)
    cluster.wait_state(4, run_id)
    return cluster.parameters_sha256(run_id)


# Three islands with a quorum of two, for SPECIAL scenarios and hostile islands.
TRIO = {"schedule": {"min_quorum": 2, "island_count_min": 3, "round_count": 2},
        "outer": {"contribution_norm_max": 1e6}}

# Merge rules, as `outer.merge`. Numbers are those of run.proto.
RDA = {"rule": 2, "mean_tensor_classes": [2]}  # Not of embeddings.
NORM_CLIP = {"rule": 3}
TRIMMED_MEAN = {"rule": 4, "byzantine_count": 1}
MEDIAN = {"rule": 5}
# Random vectors of equal norm are all nearer to their mean than that norm. The
# median norm as bound would clip none of them and give the plain mean.
CENTRED_CLIP = {"rule": 6, "clip_factor": 0.5}
KRUM = {"rule": 7, "byzantine_count": 1}
MDA = {"rule": 8, "byzantine_count": 1}


def robust(merge, *changes, island_count=5):
    """Changes for a run of `island_count` islands that merges by `merge`."""
    return ({"schedule": {"min_quorum": island_count,
                          "island_count_min": island_count},
             "data": {"data_shard_count": island_count},
             "outer": {"merge": merge}},) + changes


# With this rate finite gradients of 1e38 overflow f32 in the step.
STEEP = {"outer": {"learning_rate": 10.0}}


def poison(member, version):
    """A contribution with a NaN in each shard's range."""
    values = member.random_values("poison %d" % version)
    values[7] = values[-1] = float("nan")
    return member.contribution(values, version)


def overflow(member, version):
    """A finite contribution whose outer step is not finite under STEEP."""
    count = member.layout.fragments[0].element_count
    return member.contribution([1e38] * count, version)
