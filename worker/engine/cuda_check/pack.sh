#!/usr/bin/env bash
# Packs the check with its libraries as cuda_check.tar.gz into the working
# directory, for a machine with a device and the same libc. Without --with-cuda
# that machine must have CUDA's libraries (1 GiB) and cuDNN (optional).
#
# usage: pack.sh PROGRAM [--with-cuda]
set -euo pipefail

program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/cuda_check"
cp "$program" "$folder/cuda_check/cuda_check"

while read -r name _ path _; do
  case $name in
    # The other machine has its own libc.
    libc.so* | libm.so* | libpthread.so* | libdl.so* | librt.so* | ld-linux*)
      continue
      ;;
    libcublas* | libnccl*)
      [[ ${2:-} == --with-cuda ]] || continue
      ;;
  esac
  [[ $path == /* ]] && cp -L "$path" "$folder/cuda_check/$name"
done < <(ldd "$program")

if [[ ${2:-} == --with-cuda ]]; then
  root=$(cd "$(dirname "$0")/../../.." && pwd)
  places=$("$root/deploy/bazel/cuda/find_cuda.sh")
  for name in libcudnn_{graph,heuristic} \
    libcudnn_engines_{precompiled,runtime_compiled} libnvrtc{,-builtins}; do
    for path in "$(sed -n 's/^cudnn_lib=//p' <<<"$places")/$name".so.* \
      "$(sed -n 's/^lib=//p' <<<"$places")/$name".so.*; do
      [[ -e $path ]] && cp -L "$path" "$folder/cuda_check/"
    done
  done
fi

tar -C "$folder" -czf cuda_check.tar.gz cuda_check
echo "cuda_check.tar.gz: unpack it, then run cuda_check/cuda_check" >&2
