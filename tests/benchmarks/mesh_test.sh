#!/bin/sh
# A short run of the mesh benchmark: --json prints exactly the expected objects,
# and a wrong argument is refused. No time is judged.
set -eu
mesh="$1"
out="$TEST_TMPDIR/out"

"$mesh" --json --shape=tiny --steps=1 \
  --meshes='dp_shard=2:zero3:1f1b:1;pp=2:zero2:interleaved2:4' > "$out"
/usr/bin/python3 -B - "$out" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
assert [row["mesh"] for row in rows] == [
    "dp_shard=2:zero3:1f1b:1", "pp=2:zero2:interleaved2:4"], rows
assert [row["bubble"] for row in rows] == [0, 0.111], rows
for row in rows:
    assert list(row) == ["case", "mesh", "ranks", "processors",
                         "tokens_per_second", "scaling", "idle_share",
                         "wait_share", "bubble"], row
    assert row["tokens_per_second"] > 0 and row["scaling"] > 0, row
    assert 0 < row["wait_share"] < 1, row
PYTHON

for argument in --shape=unknown --steps=0 --meshes=pp=2 \
  --meshes=dp_shard=3:zero3:1f1b:1 --nonsense; do
  if "$mesh" --json "$argument" > "$out" 2> /dev/null; then
    echo "$argument was taken" >&2
    exit 1
  fi
  test ! -s "$out"
done
