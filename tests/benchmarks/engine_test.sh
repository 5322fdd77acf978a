#!/bin/sh
# A short run of the engine benchmark: --json prints exactly the objects that
# readers of it expect, and a wrong argument is refused. No time is judged.
set -eu
engine="$1"
out="$TEST_TMPDIR/out"

"$engine" --json --shapes=quick --threads=1,2 --steps=1 > "$out"
/usr/bin/python3 -B - "$out" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
assert [row["threads"] for row in rows] == [1, 2], rows
for row in rows:
    assert list(row) == ["case", "dtype", "threads", "tokens_per_second",
                         "peak_share"], row
    assert row["case"] == "quick" and row["dtype"] == "f32", row
    assert row["tokens_per_second"] > 0 and row["peak_share"] > 0, row
PYTHON

for argument in --shapes=unknown --threads=0 --steps=x --nonsense; do
  if "$engine" --json "$argument" > "$out" 2> /dev/null; then
    echo "$argument was taken" >&2
    exit 1
  fi
  test ! -s "$out"
done
