#!/bin/bash
# rolling_upgrade.sh REV [BACK]: replaces the programs of revision REV by those
# of this tree while a strict run goes on, and checks that no bit changes. By
# hand: it builds two versions.
#
# BACK: which programs then go back to REV, in order, separated by commas:
# island, server, coordinator. Give those whose formats on disk REV can read.
# Default: island.
set -euo pipefail

if [[ $# -lt 1 || $# -gt 2 ]]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
root=$(cd "$(dirname "$0")/../.." && pwd)
programs=(cli/atoll coordinator/atoll-coordinator server/atoll-server)
targets=(//cli:atoll //coordinator:atoll-coordinator //server:atoll-server)
work=$(mktemp -d)

# Builds the tree in the working directory and copies its programs to $1.
build() {
  source deploy/bazel/prepare.sh
  bazel build "${targets[@]}"
  for program in "${programs[@]}"; do
    install -D "bazel-bin/$program" "$1/$program"
  done
}

clean_up() {
  if [[ -d $work/tree ]]; then
    (cd "$work/tree" && bazel clean --expunge) || true
    git -C "$root" worktree remove --force "$work/tree" || true
  fi
  rm -rf "$work"
}
trap clean_up EXIT

cd "$root"
revision=$(git rev-parse --verify "$1^{commit}")
build "$work/after"
git worktree add --detach "$work/tree" "$revision"
(cd "$work/tree" && build "$work/before")

export ATOLL_BIN="$work/after"
export ATOLL_UPGRADE_BEFORE="$work/before"
export ATOLL_UPGRADE_BACK="${2-island}"
/usr/bin/python3 -B tests/upgrade/upgrade_test.py
echo "from $revision: no bit has changed"
