#!/usr/bin/env bash
# Installs the missing Debian 12 packages that Atoll needs, and reports it.
# Without the rights to install it prints one line with their names, and fails.
set -euo pipefail

packages=(
  # Build: the compiler, Bazel, and packages that Debian's Bazel recommends.
  g++ git bazel-bootstrap bazel-platforms bazel-rules-java bazel-rules-proto
  protobuf-compiler protobuf-compiler-grpc
  # Libraries.
  libabsl-dev libgrpc++-dev libprotobuf-dev librocksdb-dev libssl-dev
  libdnnl-dev libxxhash-dev libzstd-dev libhwy-dev
  libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libmicrohttpd-dev
  prometheus-cpp-dev libcurl4-openssl-dev libexpat1-dev
  # The image and the packages.
  ca-certificates tzdata dpkg-dev patchelf
  # Tests and benchmarks.
  libgtest-dev libgmock-dev libbenchmark-dev libgloo-dev
  python3 python3-grpcio python3-numpy python3-protobuf python3-venv openssl
  iproute2 prometheus
)

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [[ "$status" == "install ok installed" ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi

as_root=()
if [[ $EUID -ne 0 ]]; then
  if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
  else
    echo "Missing packages; as root, run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
fi

echo "Installing ${#missing[@]} Debian packages: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends \
  "${missing[@]}" >/dev/null
echo "Installed." >&2
