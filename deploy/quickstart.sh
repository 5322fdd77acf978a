#!/usr/bin/env bash
# Builds Atoll, trains a small model on this machine (three islands, two
# parameter servers, a coordinator), and shows the results.
#
#   ./deploy/quickstart.sh [--baseline] [--out DIR] [--data DIR]
#
#   --baseline   also train one island alone for as many steps, and compare
#   --out DIR    output directory (default: quickstart-out)
#   --data DIR   text to train on (default: the newest C++ standard library's)
#
# DIR must be new or empty: the quickstart removes nothing (exit 9).
set -euo pipefail

invoked_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

baseline=
out=quickstart-out
data=
usage() { sed -n '5,9s/^# \{0,1\}//p' "deploy/quickstart.sh" >&2; exit 2; }
# Prints an option's value; a relative path starts at the caller's directory.
place() {
  [[ $# -ge 2 && -n $2 ]] || usage
  if [[ $2 == /* ]]; then echo "$2"; else echo "$invoked_from/$2"; fi
}
while [[ $# -gt 0 ]]; do
  case $1 in
    --baseline) baseline=1; shift ;;
    --out) out=$(place "$@"); shift 2 ;;
    --data) data=$(place "$@"); shift 2 ;;
    *) usage ;;
  esac
done

# Before the build: a person should not wait for the refusal.
if [[ -e $out && -n $(ls -A "$out") ]]; then
  if [[ -e $out/run/lock ]]; then
    echo "$out has the run of an earlier quickstart. To start over, remove it:" \
      "rm -r $out; or choose another --out" >&2
  else
    echo "$out is not empty, and no quickstart made it: choose another --out" >&2
  fi
  exit 9
fi

say() { echo "== $*" >&2; }

./deploy/check_machine.sh build
say "packages"
./deploy/install_packages.sh build >&2

say "build"
source deploy/bazel/prepare.sh
./deploy/bazel/build.sh //cli:atoll //coordinator:atoll-coordinator \
  //server:atoll-server
atoll=$PWD/bazel-bin/cli/atoll

if [[ -z $data ]]; then
  data=$(find /usr/include/c++ -mindepth 1 -maxdepth 1 -type d |
    sort -V | tail -n 1)
fi

mkdir -p "$out"

started=$SECONDS
say "3 islands, 2 servers, 30 rounds on $data"
"$atoll" dev up deploy/config/laptop.toml --dir "$out/run" --data "$data" >&2

report=(--dir "$out/run" --output "$out/summary.json")
if [[ -n $baseline ]]; then
  say "one island alone, as many steps"
  "$atoll" dev baseline deploy/config/laptop.toml --data "$data" \
    --output "$out/baseline" >&2
  report+=(--baseline "$out/baseline")
fi

say "results"
"$atoll" dev report "${report[@]}"
say "$((SECONDS - started)) s after the build; summary: $out/summary.json"
