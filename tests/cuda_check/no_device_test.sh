#!/usr/bin/env bash
# The output on a machine without a device. Skipped where there is one.
set -uo pipefail

program=$1
output=$("$program" --only=codec)
code=$?
if [[ $code -eq 0 || $code -eq 1 ]]; then
  echo "there is a device: nothing to test"
  exit 0
fi
fail() {
  echo "$1: code $code, output: $output" >&2
  exit 1
}
[[ $code -eq 3 ]] || fail "without a device the exit code must be 3"
grep -q '"measure": "device", "found": false, "error": "[^"]' <<<"$output" ||
  fail "the output does not say what is missing"
[[ $(tail -n 1 <<<"$output") == "0 passed, 0 failed" ]] ||
  fail "the last line is not the totals"

"$program" --only=nothing 2>/dev/null
code=$?
[[ $code -eq 2 ]] || fail "with wrong arguments the exit code must be 2"
