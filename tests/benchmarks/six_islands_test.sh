#!/bin/sh
# A small run of the six_islands benchmark: the values are right, all bytes are
# counted, and --json prints exactly the expected object. No time is judged.
set -eu
six_islands="$1"
out="$TEST_TMPDIR/out"

"$six_islands" --json --megabytes 8 --rounds 3 > "$out"
/usr/bin/python3 -B - "$out" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
assert [row["durability"] for row in rows] == ["island", "process"], rows
for row in rows:
    assert list(row) == [
        "case", "durability", "islands", "model_mib", "rounds", "seconds",
        "seconds_max", "server_peak_mib", "server_final_mib", "peak_over_model",
        "growth", "page_cache_mib", "dirty_mib", "payload_gb_a_round",
        "loopback_gb_a_round", "cpu_s_per_gb", "cpu"], row
    assert (row["case"], row["islands"], row["rounds"]) == (
        "six_islands", 6, 3), row
    # Whole blocks of 16 KiB.
    assert 0 <= row["model_mib"] * 1.048576 - 8 < 0.02, row
    assert abs(row["payload_gb_a_round"] -
               12 * row["model_mib"] * 1.048576e-3) < 1e-3, row
    # Headers come on top of the payload.
    assert row["loopback_gb_a_round"] > row["payload_gb_a_round"], row
    assert 0 < row["seconds"] <= row["seconds_max"], row
    assert row["server_peak_mib"] >= row["server_final_mib"] > 0, row
    for key in ("growth", "peak_over_model", "cpu_s_per_gb"):
        assert row[key] > 0, row
PYTHON

# Too little memory is an error that says what to do.
if "$six_islands" --megabytes 1000000 --durability process 2> "$out"; then
  echo "a terabyte found room" >&2
  exit 1
fi
grep -q -e "--megabytes" "$out"
