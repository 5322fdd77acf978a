#!/usr/bin/env bash
# Builds and packs the GPU check: .gpu/bundle.tar.xz. It needs nothing on the
# machine that it goes to but glibc, Python and, for a device, NVIDIA's driver
# and the libraries of PyTorch's environment. Fails above 46 MiB.
#
#   deploy/gpu_check/build.sh
#
# There:  tar -xf bundle.tar.xz && ./run.py --part one --seconds 390
set -euo pipefail

fail() { echo "build.sh: $*" >&2; exit 1; }

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source deploy/artifacts/build.sh
for tool in patchelf strip xz; do
  command -v $tool >/dev/null ||
    fail "$tool is missing: run deploy/install_packages.sh"
done
./deploy/install_packages.sh >&2
source deploy/bazel/prepare.sh
deploy/bazel/cuda/find_cuda.sh >/dev/null || fail "there is no CUDA toolkit"
bazel build -c opt --config=cuda //cli:atoll //coordinator:atoll-coordinator \
  //server:atoll-server //tests/cuda_check >&2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p .gpu
/usr/bin/python3 -B deploy/gpu_check/pack.py --tree "$PWD" \
  --bin "$PWD/bazel-bin" --commit "$revision" --folder "$scratch/bundle" \
  --out "$PWD/.gpu/bundle.tar.xz"
