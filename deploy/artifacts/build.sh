# Source this at the root of the tree, with a function `fail`. It sets
#
#   revision   the commit, with -changed if the tree differs from it
#   epoch      SOURCE_DATE_EPOCH, or else the commit's time
#
# and defines build_programs.

revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
if [[ $revision != unknown && -n $(git status --porcelain) ]]; then
  revision+=-changed
fi
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || true)}
[[ -n $epoch ]] || fail "no commit gives the time: set SOURCE_DATE_EPOCH"

# build_programs DIR [FLAG...]: builds the programs, with Bazel's flags, and
# links them in DIR.
build_programs() {
  local bin=$1
  shift
  local targets=(//cli:atoll //coordinator:atoll-coordinator
    //coordinator/gate:atoll-gate //server:atoll-server)
  ./deploy/install_packages.sh build package >&2
  source deploy/bazel/prepare.sh
  bazel build -c opt "$@" "${targets[@]}" >&2
  ln -s "$PWD"/bazel-bin/{cli/atoll,coordinator/atoll-coordinator} \
    "$PWD"/bazel-bin/{coordinator/gate/atoll-gate,server/atoll-server} "$bin"
}
