#!/usr/bin/env bash
# Installs missing packages, builds everything and runs all tests. A failed test
# runs a second time, alone. The last line is `N passed, N failed`, in test
# cases, with those of cached results. It ends with `, N skipped` if a tool for
# tests could not be had, for example without PyPI.
# --times prints the ten slowest tests and the critical path
# of the build. Other arguments go to `bazel test`, for example
# --config=asan //base/...
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! ./deploy/check_machine.sh || ! ./deploy/install_packages.sh; then
  echo "0 passed, 1 failed"
  exit 1
fi

source deploy/bazel/prepare.sh

times=
targets=()
arguments=()
for argument in "$@"; do
  if [[ $argument == --times ]]; then
    times=1
    continue
  fi
  arguments+=("$argument")
  [[ "$argument" == -* ]] || targets+=("$argument")
done
set -- "${arguments[@]}"
[[ ${#targets[@]} -gt 0 ]] || set -- "$@" //...

# Tests skip what they need these tools for. Bazel's cache does not mix such
# results with others: the variable is a part of their keys.
without=()
./tests/kubernetes/install_tools.sh >/dev/null || without+=(pypi)
./tests/metrics/install_prometheus.sh || without+=(prometheus)
[[ ${#without[@]} -eq 0 ]] ||
  set -- --test_env=ATOLL_WITHOUT="${without[*]}" "$@"
[[ -z ${ATOLL_TOOLS:-} ]] || set -- --test_env=ATOLL_TOOLS "$@"

# Builds CUDA where a toolkit exists; no test needs a device.
if ./deploy/bazel/cuda/find_cuda.sh >/dev/null; then
  set -- --config=cuda "$@"
else
  echo "No CUDA toolkit (nvcc and cuBLASLt): what needs one is skipped."
fi

# run_tests EVENTS ARGUMENT...: EVENTS is written anew, so that the cases counted
# are those of this run.
run_tests() {
  bazel test --keep_going --color=no --curses=no --noshow_progress \
    --build_event_json_file="$1" "${@:2}" </dev/null
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
run_tests "$scratch/first" "$@"
counted=("$scratch/first" $?)
[[ -z $times ]] || /usr/bin/python3 tests/count_cases.py --times "$scratch/first"

# First logs are kept for a month: the second run overwrites Bazel's.
kept=$HOME/.cache/atoll-first-logs
logs=$kept/$(date -u +%Y%m%dT%H%M%SZ)-$$
[[ ! -d $kept ]] || find "$kept" -mindepth 1 -mtime +30 -delete
# Only if Bazel came to its end: then its status is 1 or 3.
if [[ ${counted[1]} == [13] ]]; then
  mapfile -t failed < <(/usr/bin/python3 tests/count_cases.py --failed \
    "$scratch/first" "$logs")
  if [[ -n ${failed[*]} ]]; then
    echo "A second time, one at a time: ${failed[*]}"
    options=()
    for argument in "$@"; do
      [[ "$argument" != -- ]] || break
      [[ "$argument" =~ ^-?(//|:|@) ]] || options+=("$argument")
    done
    run_tests "$scratch/again" "${options[@]}" --local_test_jobs=1 -- \
      "${failed[@]}"
    counted+=("$scratch/again" $? "$logs")
  fi
fi

ATOLL_WITHOUT="${without[*]}" /usr/bin/python3 tests/count_cases.py \
  "${counted[@]}"
