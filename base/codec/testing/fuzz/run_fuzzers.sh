#!/usr/bin/env bash
# Runs the codecs' fuzzers with libFuzzer and AddressSanitizer. Needs clang 14
# and its runtime (Debian: clang-14 libclang-rt-14-dev), which the build itself
# does not.
#
# usage: base/codec/testing/fuzz/run_fuzzers.sh [INPUTS [DIRECTORY]]
#
# Runs INPUTS of each target (default 10000000). Keeps programs and corpora in
# DIRECTORY (default /tmp/atoll-fuzz). Fails at the first violation; libFuzzer
# then names the file with the input.
set -euo pipefail
inputs=${1:-10000000}
directory=${2:-${TMPDIR:-/tmp}/atoll-fuzz}
cd "$(dirname "${BASH_SOURCE[0]}")/../../../.."
mkdir -p "$directory"

# Without comparison tracing: top-k compares each value with its threshold, and
# recording that would take two thirds of the time.
flags=(
  -std=c++20 -O3 -g1 -mavx2 -mfma -mf16c -mbmi -mbmi2 -mlzcnt -mpopcnt
  -ffp-contract=off -fno-strict-aliasing -DHWY_DISABLE_PCLMUL_AES
  -fconstexpr-steps=100000000 -fsanitize=address,fuzzer-no-link
  -fno-sanitize-coverage=trace-cmp -I.
)
objects=()
for source in bf16 codec e3m0 f32 int8 stream_copy top_k two_bit testing/fuzz/targets; do
  object="$directory/${source//\//_}.o"
  clang++-14 "${flags[@]}" -c "base/codec/$source.cc" -o "$object"
  objects+=("$object")
done
clang++-14 "${flags[@]}" -c base/status/check.cc -o "$directory/check.o"

for target in decode encode; do
  clang++-14 "${flags[@]}" -fsanitize=fuzzer "base/codec/testing/fuzz/${target}_fuzzer.cc" \
    "${objects[@]}" "$directory/check.o" -o "$directory/${target}_fuzzer" \
    -lhwy -labsl_strings -labsl_throw_delegate -labsl_raw_logging_internal
  mkdir -p "$directory/$target"
  # Short inputs suffice for long blocks: targets repeat them.
  "$directory/${target}_fuzzer" -runs="$inputs" -max_len=260 -verbosity=1 \
    -print_final_stats=1 -artifact_prefix="$directory/" "$directory/$target"
done
