#!/bin/sh
# A short run of the codec benchmark: --json prints exactly the expected
# objects, and a wrong argument is refused. No time is judged.
set -eu
codec="$1"
out="$TEST_TMPDIR/out"

"$codec" --json --mib=1 --repetitions=1 --paths=avx2 > "$out"
/usr/bin/python3 -B - "$out" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
assert len(rows) == 7 * 2 * 4, len(rows)
assert {row["case"] for row in rows} == {
    "f32", "bf16", "bf16_stochastic", "int8", "e3m0", "two_bit", "top_k"}
for row in rows:
    assert list(row) == [
        "case", "operation", "path", "place", "gb_per_second",
        "traffic_gb_per_second", "copy_gb_per_second", "memory_share",
        "ratio"], row
    assert row["path"] == "avx2" and row["place"] in ("dram", "l2"), row
    assert row["gb_per_second"] > 0 and row["memory_share"] > 0, row
assert max(row["ratio"] for row in rows) > 205
PYTHON

for argument in --codecs=unknown --mib=0 --repetitions=x --nonsense; do
  if "$codec" --json "$argument" > "$out" 2> /dev/null; then
    echo "$argument was taken" >&2
    exit 1
  fi
  test ! -s "$out"
done
