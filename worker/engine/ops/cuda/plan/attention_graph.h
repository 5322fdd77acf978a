// A causal attention for cuDNN's graph API: tensors and steps between them.
// Pure.
//
// cuDNN computes graphs of this form with one kernel that never writes the
// scores, and refuses others. So cuDNN dictates the steps and their order.
//
// Sizes are [B, heads, rows, columns], letters as in AttentionShape. H / G
// query heads share a head of keys and values.

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "worker/engine/ops/shapes.h"

namespace atl::engine::cuda {

enum class GraphType { kBf16, kF32, kInt32, kBool };

// The caller supplies memory for all but the first two.
enum class GraphRole {
  kWithin,  // Between two steps.
  kScalar,  // A number, part of the graph.
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
  Sizes strides = {1, 1, 1, 1};  // In elements.
  float value = 0;               // A scalar's value.
};

enum class GraphKind {
  kProduct,  // Product of matrices.
  // Element-wise operations; a size of 1 is broadcast.
  kMultiply,
  kAdd,
  kSubtract,
  kDivide,
  kExp,
  kLog,
  kRowNumber,  // The row index of each element.
  kColumnNumber,
  kAtLeast,  // first >= second.
  kSelect,   // third ? first : second.
  // Over columns.
  kLargest,
  kSum,
};

// Indices into `tensors`.
struct GraphStep {
  GraphKind kind = GraphKind::kProduct;
  std::vector<int> inputs;
  int output = 0;
};

struct AttentionGraph {
  std::vector<GraphTensor> tensors;
  std::vector<GraphStep> steps;
};

// Inputs are q, k and v (bf16, in rows of qkv). Outputs are out (bf16, [R, H
// D]) and log_sum (f32, [B, H, T]).
AttentionGraph MakeAttentionGraph(const AttentionShape& shape);

}  // namespace atl::engine::cuda
