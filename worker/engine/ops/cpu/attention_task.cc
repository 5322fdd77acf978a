#include "worker/engine/ops/cpu/attention_task.h"

namespace atl::engine {

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

}  // namespace atl::engine
