#!/bin/sh
# A small run of the round benchmark: every island checks the values it gets,
# and --json prints exactly the objects that readers of it expect. No time is
# judged.
set -eu
round="$1"
out="$TEST_TMPDIR/out"

for durability in process machine; do
  "$round" --json --mib 8 --repetitions 2 --durability "$durability" > "$out"
  /usr/bin/python3 -B - "$out" "$durability" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
assert [row["islands"] for row in rows] == [2, 4], rows
for row in rows:
    assert list(row) == ["case", "islands", "ratio", "ours_ms",
                         "yardstick_ms", "durability"], row
    assert row["case"] == "f32_nesterov", row
    assert row["durability"] == sys.argv[2], row
    assert row["ours_ms"] > 0 and row["yardstick_ms"] > 0, row
    ratio = row["ours_ms"] / row["yardstick_ms"]
    assert abs(row["ratio"] - ratio) <= 0.05 * ratio, row
PYTHON
done
