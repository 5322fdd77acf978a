#!/bin/sh
# A small run of the round benchmark: every island checks its values, and --json
# prints exactly the expected objects. No time is judged.
set -eu
round="$1"
out="$TEST_TMPDIR/out"

"$round" --json --mib 8 --repetitions 2 --durability island process machine > "$out"
/usr/bin/python3 -B - "$out" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
ours = ["island", "process", "machine"]
expected = []
for islands in (2, 4):
    for durability in ours:
        expected += [("push", islands, durability),
                     ("f32_nesterov", islands, durability)]
    expected.append(("gloo", islands, None))
for islands in (2, 4):
    expected += [("int8_bf16", islands, durability) for durability in ours]
found = [(row["case"], row["islands"], row.get("durability")) for row in rows]
assert found == expected, found
keys = {
    "push": ["least_ratio", "ours_gb_per_s", "raw_gb_per_s",
             "least_gb_per_s", "cpu_s_per_gb", "raw_cpu_s_per_gb",
             "least_cpu_s_per_gb"],
    "f32_nesterov": ["ours_ms", "yardstick_ms", "cpu_s_per_gb",
                     "yardstick_cpu_s_per_gb", "server_anonymous_mib",
                     "merge_gb_per_s"],
    "int8_bf16": ["ours_ms", "yardstick_ms", "cpu_s_per_gb"],
    "gloo": ["gloo_ms", "yardstick_ms", "cpu_s_per_gb"],
}
for row in rows:
    assert row["cpu"], row
    for key in keys[row["case"]] + ["ratio"]:
        assert row[key] > 0, (key, row)
    if row["case"] in ("f32_nesterov", "int8_bf16"):
        ratio = row["ours_ms"] / row["yardstick_ms"]
        assert abs(row["ratio"] - ratio) <= 0.05 * ratio, row
PYTHON
