#!/bin/sh
# --json prints exactly the expected objects, throughputs come from a file, and
# a wrong file is refused.
set -eu
utilization="$1"
out="$TEST_TMPDIR/out"

"$utilization" --json > "$out"
/usr/bin/python3 -B - "$out" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
cases = [row["case"] for row in rows]
assert cases.count("reduction") == 15, cases
assert cases.count("servers") % 3 == 0 and cases.count("servers"), cases
for row in rows:
    if row["case"] == "at_1_gigabit":
        assert list(row) == ["case", "model", "method", "utilization",
                             "planned", "codec_blocks", "reaches_95"], row
        assert 0 < row["utilization"] <= 1 + 1e-9, row
        assert row["reaches_95"] == (row["utilization"] >= 0.95), row
        continue
    figures = [x for x in row["gigabits_per_second"] if x is not None]
    assert figures == sorted(figures), row
    assert row["utilization"] == [0.5, 0.8, 0.9, 0.95, 0.99], row
    assert (row["case"] == "reduction") == (
        "published_gigabits_per_second" in row), row
PYTHON

utilization_of() {
  "$utilization" --json --services "$TEST_TMPDIR/services" |
    grep '"at_1_gigabit".*"diloco_f32"' | head -1 |
    sed 's/.*"utilization":\([0-9.]*\).*/\1/'
}
echo '{"merge_bytes_per_second": 1e12}' > "$TEST_TMPDIR/services"
fast=$(utilization_of)
echo '{"merge_bytes_per_second": 1e7,
       "encode_bytes_per_second": {"f32": 1e9}}' > "$TEST_TMPDIR/services"
slow=$(utilization_of)
/usr/bin/python3 -c "assert $slow < 0.1 * $fast, ($slow, $fast)"

# services.py converts the output of codec and round.
cat > "$TEST_TMPDIR/codec" <<'JSON'
{"case": "f32", "operation": "feedback", "place": "dram", "path": "avx2", "gb_per_second": 2}
{"case": "f32", "operation": "feedback", "place": "dram", "path": "plain", "gb_per_second": 1}
{"case": "f32", "operation": "feedback", "place": "l2", "path": "avx2", "gb_per_second": 9}
{"case": "f32", "operation": "decode", "place": "dram", "path": "avx2", "gb_per_second": 3}
JSON
cat > "$TEST_TMPDIR/round" <<'JSON'
{"case": "f32_nesterov", "islands": 2, "durability": "process", "merge_gb_per_s": 5}
{"case": "f32_nesterov", "islands": 4, "durability": "process", "merge_gb_per_s": 4}
{"case": "f32_nesterov", "islands": 4, "durability": "island", "merge_gb_per_s": 99}
{"case": "gloo", "islands": 4}
JSON
/usr/bin/python3 -B "$2" --codec "$TEST_TMPDIR/codec" \
  --round "$TEST_TMPDIR/round" > "$TEST_TMPDIR/services"
/usr/bin/python3 -B - "$TEST_TMPDIR/services" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    assert json.load(file) == {
        "encode_bytes_per_second": {"f32": 2e9},
        "decode_bytes_per_second": {"f32": 3e9},
        "merge_bytes_per_second": 4e9}
PYTHON
utilization_of > /dev/null

for text in '[]' 'x' '{"merge": 1}' '{"commit_seconds": "1"}' \
    '{"encode_bytes_per_second": {"zip": 1}}' \
    '{"merge_bytes_per_second": {"f32": 1}}' '{"commit_seconds": -1}'; do
  echo "$text" > "$TEST_TMPDIR/services"
  if "$utilization" --json --services "$TEST_TMPDIR/services" \
      > "$out" 2> /dev/null; then
    echo "$text was taken" >&2
    exit 1
  fi
  test ! -s "$out"
done
