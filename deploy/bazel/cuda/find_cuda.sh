#!/usr/bin/env bash
# Prints the paths of a CUDA toolkit and its libraries as lines NAME=PATH: nvcc,
# include, lib (of cudart and cuBLASLt), nccl_include, nccl_lib, cudnn_include,
# cudnn_lib. Fails silently without nvcc or cuBLASLt. The paths of a missing
# NCCL or cuDNN are empty. Called by Bazel (repository.bzl) and tests/run.sh.
set -euo pipefail

nvcc=
for candidate in "${CUDA_HOME:-/nowhere}/bin/nvcc" "$(command -v nvcc || true)" \
  /usr/local/cuda/bin/nvcc; do
  if [[ -x $candidate ]]; then
    nvcc=$(readlink -f "$candidate")
    break
  fi
done
[[ -n $nvcc ]] || exit 1
root=$(dirname "$(dirname "$nvcc")")

# first DIR... FILE: prints the first DIR that has FILE.
first() {
  local file=${*: -1} folder
  for folder in "${@:1:$#-1}"; do
    if [[ -e $folder/$file ]]; then
      echo "$folder"
      return
    fi
  done
}

includes=("$root/include" "$root/targets/x86_64-linux/include" /usr/include
  /usr/local/include)
libs=("$root/lib64" "$root/targets/x86_64-linux/lib"
  /usr/lib/x86_64-linux-gnu /usr/local/lib)

include=$(first "${includes[@]}" cublasLt.h)
lib=$(first "${libs[@]}" libcublasLt.so)
[[ -n $include && -n $lib && -e $lib/libcudart_static.a ]] || exit 1
echo "nvcc=$nvcc"
echo "include=$include"
echo "lib=$lib"
echo "nccl_include=$(first "${includes[@]}" nccl.h)"
echo "nccl_lib=$(first "${libs[@]}" libnccl.so)"
echo "cudnn_include=$(first "${includes[@]}" cudnn.h)"
echo "cudnn_lib=$(first "${libs[@]}" libcudnn.so)"
