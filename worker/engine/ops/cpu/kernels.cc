#include "worker/engine/ops/cpu/kernels.h"

#include <cstdint>

namespace atl::engine {
namespace {

// Lanes of the widest vector; rows are padded to a multiple of it.
constexpr int64_t kLanesMax = 16;

int64_t RoundUp(int64_t n) {
  return (n + kLanesMax - 1) / kLanesMax * kLanesMax;
}

}  // namespace

int64_t AttentionScratchElements(int64_t sequence_length, int64_t head_dim) {
  const int64_t t_width = RoundUp(sequence_length);
  const int64_t d_width = RoundUp(head_dim);
  return 2 * head_dim * t_width + 6 * sequence_length * d_width +
         kAttentionBlockRows * (2 * t_width + d_width) + 16 * kLanesMax;
}

bool HasAvx512() {
  return __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

const Kernels& BestKernels() {
  return HasAvx512() ? Avx512Kernels() : Avx2Kernels();
}

}  // namespace atl::engine
