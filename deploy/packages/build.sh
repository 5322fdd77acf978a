#!/usr/bin/env bash
# Builds the packages of Atoll: two .debs, a tarball, their SBOMs, SHA256SUMS.
#
#   deploy/packages/build.sh [--out DIR] [--bin DIR]
#
#   --out DIR    where to write them (default: deploy/packages/out)
#   --bin DIR    take the programs of DIR, and build none
#
# SOURCE_DATE_EPOCH is the time of all files (default: the commit's time).
set -euo pipefail

fail() { echo "build.sh: $*" >&2; exit 1; }
usage() { sed -n '4,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }

out= bin=
while [[ $# -gt 0 ]]; do
  [[ -n ${2:-} ]] || usage
  case $1 in
    --out) out=$(realpath -m "$2") ;;
    --bin) bin=$(realpath "$2") ;;
    *) usage ;;
  esac
  shift 2
done

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
for tool in dpkg-deb dpkg-shlibdeps patchelf; do
  command -v $tool >/dev/null ||
    fail "$tool is missing: run deploy/install_packages.sh"
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

source deploy/artifacts/build.sh
if [[ -z $bin ]]; then
  bin=$scratch
  build_programs "$bin"
fi

/usr/bin/python3 -B deploy/packages/make_packages.py --bin "$bin" \
  --tree "$PWD" --out "${out:-$PWD/deploy/packages/out}" \
  --revision "$revision" --epoch "$epoch"
