"""Data directories as programs of one storage format leave them.

An archive golden/NAME.tar.xz holds

    coordinator/ server-0/ server-1/ island-0/ island-1/   killed in a round
    text/           the tokens
    expected.json   what make_golden.py saw; _EXPECTED says what
"""

import json
import os
import tarfile

ISLANDS = ["island-0", "island-1"]
SERVERS = ["server-0", "server-1"]

# 1,228 parameters: a version takes 5 KB.
CHANGES = {
    "model": {"hidden_size": 4, "intermediate_size": 8, "layer_count": 1,
              "head_count": 1, "kv_head_count": 1, "sequence_length": 16,
              "tie_embeddings": True},
    "data": {"data_shard_count": 2},
    "schedule": {"inner_step_count": 5, "round_count": 10,
                 "island_count_min": 2, "min_quorum": 2},
    "evaluation": {"every_round_count": 0},
}

# The fields of expected.json: SHA-256 of the finished run; describe_rounds()
# before the kill; describe_processor() of the machine.
_EXPECTED = ("parameters_sha256", "rounds", "processor")


def describe_processor():
    """What decides the bits of an island's arithmetic: the processor's kind
    and its vector instructions."""
    wanted = ("vendor_id", "cpu family", "model", "flags")
    found = {}
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            key, _, value = (part.strip() for part in line.partition(":"))
            if key in wanted:
                found.setdefault(key, value)
    found["flags"] = " ".join(
        flag for flag in sorted(found.get("flags", "").split())
        if flag.startswith(("avx", "fma", "amx", "sse")))
    return found


def describe_rounds(rounds):
    """What must be the same in every version of the programs, as JSON."""
    return [{
        "commit_seq": r.commit_seq,
        "fragment": r.fragment,
        "version": r.version,
        "digest": "%016x%016x" % (r.digest.high, r.digest.low),
        "contributions": [{
            "island_id": c.island_id,
            "slot": c.info.key.slot,
            "seq": c.info.key.seq,
            "digest": "%016x%016x" % (c.info.digest.high, c.info.digest.low),
            "outcome": c.outcome,
            "weight": c.weight,
        } for c in r.contributions],
    } for r in rounds]


def start_service(cluster):
    """Starts the coordinator and both servers on the cluster's directories."""
    cluster.start_coordinator()
    for name in SERVERS:
        cluster.start_server(name)


def start_islands(cluster):
    text = os.path.join(cluster.directory, "text")
    for name in ISLANDS:
        cluster.start_island("run", name, data=text)


def pack(directory, archive, expected):
    """Writes the archive of `directory`."""
    assert sorted(expected) == sorted(_EXPECTED), expected
    with open(os.path.join(directory, "expected.json"), "w",
              encoding="ascii") as file:
        json.dump(expected, file, indent=1, sort_keys=True)

    def anonymous(info):
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for name in ["expected.json", "coordinator", "text"] + SERVERS + ISLANDS:
            tar.add(os.path.join(directory, name), name, filter=anonymous)


def unpack(archive, directory):
    """Unpacks an archive into `directory`; returns its expected.json."""
    os.makedirs(directory, exist_ok=True)
    with tarfile.open(archive, "r:xz") as tar:
        tar.extractall(directory)
    with open(os.path.join(directory, "expected.json"),
              encoding="ascii") as file:
        return json.load(file)
