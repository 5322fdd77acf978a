#!/bin/sh
# A short run of the engine benchmark: --json prints exactly the expected
# objects, and a wrong argument is refused. No time is judged.
set -eu
engine="$1"
out="$TEST_TMPDIR/out"

"$engine" --json --shapes=quick --threads=1,2 --compute=f32,bf16 \
  --steps=1 > "$out"
/usr/bin/python3 -B - "$out" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
assert [(row["threads"], row["dtype"]) for row in rows] == [
    (1, "f32"), (1, "bf16"), (2, "f32"), (2, "bf16")], rows
for row in rows:
    assert list(row) == ["case", "dtype", "threads", "tokens_per_second",
                         "peak_share", "peak_gflops"], row
    assert row["case"] == "quick" and row["tokens_per_second"] > 0, row
    # A CPU without AVX-512 has no bf16 peak.
    if row["dtype"] == "f32" or row["peak_gflops"] > 0:
        assert row["peak_share"] > 0, row
PYTHON

for argument in --shapes=unknown --threads=0 --compute=f16 --steps=x \
  --nonsense; do
  if "$engine" --json "$argument" > "$out" 2> /dev/null; then
    echo "$argument was taken" >&2
    exit 1
  fi
  test ! -s "$out"
done
