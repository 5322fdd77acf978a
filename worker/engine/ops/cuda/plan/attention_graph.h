// A causal attention as cuDNN's graph API takes it: tensors, and steps from
// tensors to tensors. cuDNN has kernels for whole graphs of this form, which
// never write the scores, and refuses others; which steps there are and in what
// order is that form, and not a choice of ours.
//
// Pure.
//
// Sizes are [B, heads, rows, columns], letters as in AttentionShape. A head of
// keys or values is that of H / G heads of queries.

#ifndef WORKER_ENGINE_OPS_CUDA_PLAN_ATTENTION_GRAPH_H_
#define WORKER_ENGINE_OPS_CUDA_PLAN_ATTENTION_GRAPH_H_

#include <array>
#include <cstdint>
#include <vector>

#include "worker/engine/ops/shapes.h"

namespace atl::engine::cuda {

enum class GraphType { kBf16, kF32, kInt32, kBool };

// What a tensor is to the caller, who has memory for all but the first two.
enum class GraphRole {
  kWithin,  // Between two steps.
  kScalar,  // A number, given with the graph.
  kQueries,
  kKeys,
  kValues,
  kOut,
  kLogSum,
};

struct GraphTensor {
  using Sizes = std::array<int64_t, 4>;

  GraphRole role = GraphRole::kWithin;
  GraphType type = GraphType::kF32;
  Sizes sizes = {1, 1, 1, 1};
  Sizes strides = {1, 1, 1, 1};  // Elements.
  float value = 0;               // Of a scalar.
};

enum class GraphKind {
  kProduct,  // Of matrices.
  // By elements; a size of 1 stands for all.
  kMultiply,
  kAdd,
  kSubtract,
  kDivide,
  kExp,
  kLog,
  kRowNumber,  // Where an element is among the rows.
  kColumnNumber,
  kAtLeast,  // Whether first >= second.
  kSelect,   // third ? first : second.
  // Over columns.
  kLargest,
  kSum,
};

// Tensors by their index.
struct GraphStep {
  GraphKind kind = GraphKind::kProduct;
  std::vector<int> inputs;
  int output = 0;
};

struct AttentionGraph {
  std::vector<GraphTensor> tensors;
  std::vector<GraphStep> steps;
};

// From queries, keys and values (bf16, as they lie in rows of qkv) to the
// output (bf16, [R, H D]) and log_sum (f32, [B, H, T]).
AttentionGraph MakeAttentionGraph(const AttentionShape& shape);

}  // namespace atl::engine::cuda

#endif  // WORKER_ENGINE_OPS_CUDA_PLAN_ATTENTION_GRAPH_H_
