#!/usr/bin/env bash
# Runs both parts of the GPU check from the packed bundle on this machine, which
# has no device: each step ends with "no device", the table is printed, and the
# exit code is 10. build.sh comes first.
#
#   deploy/gpu_check/rehearse.sh
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bundle=$PWD/.gpu/bundle.tar.xz
[[ -f $bundle ]] ||
  { echo "rehearse.sh: run deploy/gpu_check/build.sh first" >&2; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tar -C "$scratch" -xf "$bundle"
code=0
for part in "one 390" "two 270"; do
  read -r name seconds <<<"$part"
  "$scratch/run.py" --part "$name" --seconds "$seconds" || {
    ended=$?
    [[ $code -eq 1 ]] || code=$ended
  }
done
exit "$code"
