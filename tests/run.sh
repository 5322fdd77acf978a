#!/usr/bin/env bash
# Installs missing packages, builds everything and runs all tests. The last line
# is `N passed, N failed`, in test cases, with those of cached results.
# Arguments go to `bazel test`, e.g. --config=asan //base/...
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! ./deploy/install_packages.sh; then
  echo "0 passed, 1 failed"
  exit 1
fi

if ! ./tests/kubernetes/install_tools.sh >/dev/null; then
  echo "0 passed, 1 failed"
  exit 1
fi

source deploy/bazel/prepare.sh

[[ -z ${ATOLL_TOOLS:-} ]] || set -- --test_env=ATOLL_TOOLS "$@"

targets=()
for argument in "$@"; do
  [[ "$argument" == -* ]] || targets+=("$argument")
done
[[ ${#targets[@]} -gt 0 ]] || set -- "$@" //...

# Builds CUDA where a toolkit exists; no test needs a device.
if ./deploy/bazel/cuda/find_cuda.sh >/dev/null; then
  set -- --config=cuda "$@"
else
  echo "No CUDA toolkit (nvcc and cuBLASLt): what needs one is skipped."
fi

# Written anew by the build, so that the cases counted are of this run.
events=$(mktemp)
trap 'rm -f "$events"' EXIT
bazel test --keep_going --color=no --curses=no --noshow_progress \
  --build_event_json_file="$events" "$@" </dev/null
status=$?

/usr/bin/python3 tests/count_cases.py "$events" "$status"
