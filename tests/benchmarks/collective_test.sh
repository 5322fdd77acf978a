#!/bin/sh
# A short run of the collective benchmark: every case and Gloo's ring are in the
# output, and the sums are right. No time is judged.
set -eu
collective="$1"
out="$TEST_TMPDIR/out"

"$collective" --json --mib=1 --runs=1 > "$out"
/usr/bin/python3 -B - "$out" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
seen = [(row["where"], row["ranks"], row["case"]) for row in rows]
calls = ["all_reduce", "all_gather", "reduce_scatter"]
expected = []
for ranks in (2, 4):
    expected += [("threads", ranks, call) for call in calls]
    expected += [("processes", ranks, call) for call in calls]
    expected += [("encrypted", ranks, call) for call in calls]
    expected += [("gloo", ranks, "all_reduce")]
    expected += [("processes", ranks, "rendezvous")]
    expected += [("encrypted", ranks, "rendezvous")]
assert seen == expected, seen
for row in rows:
    if row["case"] == "rendezvous":
        assert row["seconds"] > 0, row
        continue
    assert row["gb_per_second"] > 0, row
    beside = row["case"] == "all_reduce" and row["where"] != "gloo"
    assert ("ratio_to_gloo" in row) == beside, row
PYTHON
