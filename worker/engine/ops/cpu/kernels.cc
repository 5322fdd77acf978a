#include "worker/engine/ops/cpu/kernels.h"

namespace atl::engine {
namespace {

// Lanes of the widest vector; rows are padded to a multiple of it.
constexpr int64_t kLanesMax = 16;

int64_t RoundUp(int64_t n) {
  return (n + kLanesMax - 1) / kLanesMax * kLanesMax;
}

}  // namespace

AttentionTask MakeTask(const AttentionShape& shape, int64_t index,
                       const float* qkv, float* out, float* log_sum) {
  const int64_t b = index / shape.kv_head_count;
  const int64_t kv_head = index % shape.kv_head_count;
  AttentionTask task;
  task.sequence_length = shape.sequence_length;
  task.head_dim = shape.head_dim;
  task.group = shape.head_count / shape.kv_head_count;
  task.qkv_stride = shape.qkv_size();
  task.out_stride = shape.out_size();
  const int64_t head = kv_head * task.group;
  const float* row = qkv + b * shape.sequence_length * task.qkv_stride;
  task.q = row + head * shape.head_dim;
  task.k = row + (shape.head_count + kv_head) * shape.head_dim;
  task.v = task.k + shape.kv_head_count * shape.head_dim;
  task.out =
      out + b * shape.sequence_length * task.out_stride + head * shape.head_dim;
  task.log_sum =
      log_sum + (b * shape.head_count + head) * shape.sequence_length;
  return task;
}

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
