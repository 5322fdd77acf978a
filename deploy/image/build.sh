#!/usr/bin/env bash
# Builds the OCI image of Atoll, and prints the digest of its manifest.
#
#   deploy/image/build.sh [--out FILE] [--push REF] [--cuda] [--bin DIR]
#
#   --out FILE   archive to write (default: deploy/image/out/atoll.tar, or
#                atoll-cuda.tar); the SBOM is FILE with .spdx.json for .tar
#   --push REF   also push the archive to the registry image REF, with skopeo
#   --cuda       the programs with CUDA, and NVIDIA's libraries
#   --bin DIR    take the programs of DIR, and build none
#
# SOURCE_DATE_EPOCH is the time of all files (default: the commit's time).
set -euo pipefail

fail() { echo "build.sh: $*" >&2; exit 1; }
usage() { sed -n '4,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }

out= push= cuda= bin=
while [[ $# -gt 0 ]]; do
  case $1 in
    --cuda) cuda=1; shift; continue ;;
    --out | --push | --bin) [[ -n ${2:-} ]] || usage ;;
    *) usage ;;
  esac
  case $1 in
    --out) out=$(realpath -m "$2") ;;
    --push) push=$2 ;;
    --bin) bin=$(realpath "$2") ;;
  esac
  shift 2
done

[[ -z $push ]] || command -v skopeo >/dev/null ||
  fail "--push needs skopeo: apt-get install skopeo, or copy the archive with" \
    "another tool"

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

source deploy/artifacts/build.sh

flags=()
if [[ -n $cuda ]]; then
  places=$(deploy/bazel/cuda/find_cuda.sh) ||
    fail "no CUDA toolkit: set CUDA_HOME"
  # Programs open these at run time; NEEDED does not name them.
  for pair in lib:cublasLt nccl_lib:nccl 'cudnn_lib:cudnn*'; do
    folder=$(sed -n "s/^${pair%:*}=//p" <<<"$places")
    for library in "$folder"/lib${pair#*:}.so.{[0-9],[0-9][0-9]}; do
      [[ ! -e $library ]] || flags+=(--library "$library")
    done
  done
fi

if [[ -z $bin ]]; then
  bin=$scratch
  build_programs "$bin" ${cuda:+--config=cuda}
fi

out=${out:-$PWD/deploy/image/out/atoll${cuda:+-cuda}.tar}
digest=$(/usr/bin/python3 -B deploy/image/make_image.py --bin "$bin" \
  --tree "$PWD" --out "$out" --revision "$revision" --epoch "$epoch" \
  "${flags[@]}")
echo "image: $out" >&2
if [[ -n $push ]]; then
  skopeo copy "oci-archive:$out" "docker://$push" >&2
fi
echo "$digest"
