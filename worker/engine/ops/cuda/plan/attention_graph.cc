#include "worker/engine/ops/cuda/plan/attention_graph.h"

#include <cmath>
#include <limits>
#include <utility>

namespace atl::engine::cuda {
namespace {

using Sizes = GraphTensor::Sizes;

class Builder {
 public:
  explicit Builder(const AttentionShape& shape) : s_(shape) {}

  AttentionGraph Take() { return std::move(graph_); }

  Sizes scores() const {
    return {s_.batch, s_.head_count, s_.sequence_length, s_.sequence_length};
  }
  Sizes rows() const {
    return {s_.batch, s_.head_count, s_.sequence_length, 1};
  }

  int Add(const GraphTensor& tensor) {
    graph_.tensors.push_back(tensor);
    return static_cast<int>(graph_.tensors.size()) - 1;
  }
  int Scalar(float value) {
    return Add({.role = GraphRole::kScalar, .value = value});
  }
  // Without gaps; columns are contiguous.
  int Packed(GraphRole role, GraphType type, const Sizes& sizes) {
    GraphTensor tensor{.role = role, .type = type, .sizes = sizes};
    for (int i = 2; i >= 0; --i) {
      tensor.strides[i] = tensor.strides[i + 1] * sizes[i + 1];
    }
    return Add(tensor);
  }
  // `count` heads next to each other in rows of `width` channels.
  int Heads(GraphRole role, int64_t count, int64_t width) {
    const int64_t length = s_.sequence_length;
    return Add({.role = role,
                .type = GraphType::kBf16,
                .sizes = {s_.batch, count, length, s_.head_dim},
                .strides = {length * width, s_.head_dim, width, 1}});
  }
  // The same memory with rows and columns exchanged.
  int HeadsAcross(GraphRole role, int64_t count, int64_t width) {
    const int index = Heads(role, count, width);
    GraphTensor& tensor = graph_.tensors[index];
    std::swap(tensor.sizes[2], tensor.sizes[3]);
    std::swap(tensor.strides[2], tensor.strides[3]);
    return index;
  }

  void StepInto(GraphKind kind, std::vector<int> inputs, int output) {
    graph_.steps.push_back({kind, std::move(inputs), output});
  }
  int Step(GraphKind kind, std::vector<int> inputs, const Sizes& sizes,
           GraphType type = GraphType::kF32) {
    const int output = Packed(GraphRole::kWithin, type, sizes);
    StepInto(kind, std::move(inputs), output);
    return output;
  }

 private:
  const AttentionShape s_;
  AttentionGraph graph_;
};

}  // namespace

AttentionGraph MakeAttentionGraph(const AttentionShape& s) {
  using K = GraphKind;
  using R = GraphRole;
  Builder b(s);
  const int q = b.Heads(R::kQueries, s.head_count, s.qkv_size());
  const int k = b.HeadsAcross(R::kKeys, s.kv_head_count, s.qkv_size());
  const int v = b.Heads(R::kValues, s.kv_head_count, s.qkv_size());
  const int out = b.Heads(R::kOut, s.head_count, s.out_size());
  const int log_sum = b.Packed(R::kLogSum, GraphType::kF32, b.rows());

  const int scale = b.Scalar(
      static_cast<float>(1 / std::sqrt(static_cast<double>(s.head_dim))));
  const int products = b.Step(K::kProduct, {q, k}, b.scores());
  const int scaled = b.Step(K::kMultiply, {products, scale}, b.scores());

  // exp turns -inf into 0 for keys that a query does not see.
  const int nothing = b.Scalar(-std::numeric_limits<float>::infinity());
  const int row =
      b.Step(K::kRowNumber, {scaled}, b.scores(), GraphType::kInt32);
  const int column =
      b.Step(K::kColumnNumber, {scaled}, b.scores(), GraphType::kInt32);
  const int seen =
      b.Step(K::kAtLeast, {row, column}, b.scores(), GraphType::kBool);
  const int scores = b.Step(K::kSelect, {scaled, nothing, seen}, b.scores());

  const int top = b.Step(K::kLargest, {scores}, b.rows());
  const int below = b.Step(K::kSubtract, {scores, top}, b.scores());
  const int powers = b.Step(K::kExp, {below}, b.scores());
  const int sum = b.Step(K::kSum, {powers}, b.rows());
  const int log = b.Step(K::kLog, {sum}, b.rows());
  b.StepInto(K::kAdd, {top, log}, log_sum);
  const int probabilities =
      b.Step(K::kDivide, {powers, sum}, b.scores(), GraphType::kBf16);
  b.StepInto(K::kProduct, {probabilities, v}, out);
  return b.Take();
}

}  // namespace atl::engine::cuda
