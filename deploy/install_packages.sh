#!/usr/bin/env bash
# Installs the missing Debian 12 packages that Atoll needs, and reports it.
# Without the rights to install it prints one line with their names, and fails.
#
#   deploy/install_packages.sh [--check] [LIST...]
#
#   LIST      build, test or package (default: all three)
#   --check   installs nothing, and fails if it could not
set -euo pipefail

# The compiler, Bazel with packages that Debian's only recommends, libraries.
# libgtest-dev: precompiled headers depend on its version.
build=(
  g++ bazel-bootstrap bazel-platforms bazel-rules-java bazel-rules-proto
  protobuf-compiler protobuf-compiler-grpc
  libabsl-dev libgrpc++-dev libprotobuf-dev librocksdb-dev libssl-dev
  libdnnl-dev libxxhash-dev libzstd-dev libhwy-dev libjemalloc-dev
  libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libmicrohttpd-dev
  prometheus-cpp-dev libcurl4-openssl-dev libexpat1-dev libgtest-dev
)
# Tests and benchmarks. No package here may start a service.
test=(
  libgmock-dev libgloo-dev
  python3 python3-grpcio python3-numpy python3-protobuf python3-venv openssl
  iproute2
)
# The image and the packages.
package=(ca-certificates tzdata dpkg-dev patchelf git)

check=
if [[ ${1:-} == --check ]]; then
  check=1
  shift
fi
[[ $# -gt 0 ]] || set -- build test package
wanted=()
for list in "$@"; do
  case $list in
    build | test | package) declare -n names=$list; wanted+=("${names[@]}") ;;
    *) sed -n '5,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
done

missing=()
for name in "${wanted[@]}"; do
  status=$(dpkg-query -W -f='${Status}' "$name" 2>/dev/null || true)
  [[ "$status" == "install ok installed" ]] || missing+=("$name")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi

as_root=()
if [[ $EUID -ne 0 ]]; then
  if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
  else
    echo "Missing packages, and sudo needs a password or is missing; as root," \
      "run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
fi
[[ -z $check ]] || exit 0

echo "Installing ${#missing[@]} Debian packages: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends \
  "${missing[@]}" >/dev/null
echo "Installed." >&2
