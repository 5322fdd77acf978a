#!/bin/sh
# Small runs of the benchmark of the coordinator: --json prints exactly the
# expected objects. Counts and bytes are judged, no time is.
set -eu
control="$1"
out="$TEST_TMPDIR/out"

"$control" --json --cases round --islands 4,8 --fragments 2 --servers 2 \
    --rounds 2 --filled-rounds 3 --round-s 1 > "$out"
/usr/bin/python3 -B - "$out" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
fields = ["islands", "fragments", "servers", "tls", "round_s",
          "coordinator_cores", "coordinator_cpu_s_per_round",
          "generator_cores", "heartbeat_ms_p50", "heartbeat_ms_p99",
          "plans_per_island_round", "plan_bytes", "rss_mib"]
assert list(rows[-1]) == ["exponent_round", "exponent_message"], rows[-1]
assert all(value is not None for value in rows[-1].values()), rows[-1]
probes = [row for row in rows if row.get("case") == "probe"]
rounds = [row for row in rows[:-1] if "case" not in row]
assert len(rows) == 9 and len(probes) == len(rounds) == 4, rows
found = [(row["tls"], row["islands"]) for row in rounds]
assert found == [(tls, n) for tls in (False, True) for n in (4, 8)], found
for row in rounds:
    assert list(row) == fields, row
    assert all(row[name] > 0 for name in fields[4:]), row
    # A round changes a plan when it opens and when it commits; the two
    # fragments may do so together or one after the other.
    assert 1 <= row["plans_per_island_round"] <= 8, row
    # At most 1 KiB a plan of an island, and 4 KiB one of a server.
    most = row["islands"] * row["plans_per_island_round"] * 1024 + 40 * 4096
    assert row["plan_bytes"] <= most, row
for probe in probes:
    assert probe["errors"] == 0, probe
    assert probe["islands_per_connection"] == 1, probe
PYTHON

"$control" --json --tls false --case-islands 8 --flood-s 1 \
    --cases connections,lost,rejoin,flap,restart > "$out"
/usr/bin/python3 -B - "$out" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    rows = [json.loads(line) for line in file][:-1]
names = ["connections", "lost", "rejoin", "flap", "restart"]
assert [row["case"] for row in rows] == names, rows
case = dict(zip(names, rows))
for row in rows:
    assert row["islands"] == 8, row
for name in names[1:]:
    assert case[name]["rss_mib"] > 0, case[name]
assert "beside_bare_kib" in case["connections"], case["connections"]
# A fifth of what three quarters of the islands have pushed.
assert 0 < case["lost"]["lost"] <= 0.2 * 8 * 24, case["lost"]
assert case["rejoin"]["island_plans"] >= 8, case["rejoin"]
assert case["flap"]["joins"] > 0, case["flap"]
PYTHON

# With certificates, so that limits of one caller hold. A flood lasts until it
# has an effect. In five_runs rounds of other runs are measured meanwhile.
floods="enrolment,getrun,handshake,join,listislands,listrounds,watchrun"
floods=$(echo ",$floods" | sed 's/,\([a-z]*\)/,\1_flood/g')
flood() {
  "$control" --json --tls true --case-islands 8 --certificates 1,3 "$@"
}
flood --flood-s 1 --cases five_runs > "$out"
flood --flood-s 0.2 --cases "${floods#,}" >> "$out"
/usr/bin/python3 -B - "$out" "five_runs$floods" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    rows = [row for row in map(json.loads, file) if "case" in row]
expected = [(name, count) for name in sys.argv[2].split(",")
            for count in (1, 3)]
assert [(r["case"], r["certificates"]) for r in rows] == expected, rows
for row in rows:
    assert row["islands"] == 8 and row["tls"], row
    # A flood may take memory, but only so much.
    assert 0 < row["rss_mib"] < row["rss_mib_allowed"], row
    if row["case"] == "watchrun_flood":
        assert row["flood_events"] > 0, row
    else:
        assert row["flood_calls"] > row["flood_refused"], row
    if row["case"] == "five_runs":
        assert row["other_runs_round_s"] > 0, row
PYTHON
