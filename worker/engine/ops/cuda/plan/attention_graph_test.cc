// Evaluates the graphs in f64 and compares them with the definition.

#include "worker/engine/ops/cuda/plan/attention_graph.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "worker/engine/ops/testing/plain_ops.h"

namespace atl::engine::cuda {
namespace {

using Values = std::vector<double>;
using Place = GraphTensor::Sizes;

// Calls f(place) for each element of a tensor, the last size fastest.
template <typename F>
void ForEach(const Place& sizes, const F& f) {
  Place p = {};
  for (p[0] = 0; p[0] < sizes[0]; ++p[0]) {
    for (p[1] = 0; p[1] < sizes[1]; ++p[1]) {
      for (p[2] = 0; p[2] < sizes[2]; ++p[2]) {
        for (p[3] = 0; p[3] < sizes[3]; ++p[3]) f(p);
      }
    }
  }
}

// The graph's inner tensors have no gaps; others are in the caller's memory.
class Evaluator {
 public:
  Evaluator(const AttentionGraph& graph, std::map<GraphRole, double*> memory)
      : graph_(graph), within_(graph.tensors.size()), memory_(memory) {}

  void Run() {
    for (const GraphStep& step : graph_.steps) Do(step);
  }

 private:
  const GraphTensor& At(int tensor) const { return graph_.tensors[tensor]; }

  double& Element(int tensor, const Place& p) {
    const GraphTensor& t = At(tensor);
    int64_t at = 0;
    for (int i = 0; i < 4; ++i) {
      EXPECT_LT(p[i], t.sizes[i]);
      at += p[i] *
            (t.role == GraphRole::kWithin ? Packed(t.sizes, i) : t.strides[i]);
    }
    if (t.role == GraphRole::kWithin) return within_[tensor].at(at);
    return memory_.at(t.role)[at];
  }
  static int64_t Packed(const Place& sizes, int i) {
    int64_t stride = 1;
    while (++i < 4) stride *= sizes[i];
    return stride;
  }
  // Broadcasts a tensor with one element, or with shared heads, to `sizes`.
  double Read(int tensor, const Place& p, const Place& sizes) {
    const GraphTensor& t = At(tensor);
    if (t.role == GraphRole::kScalar) return t.value;
    Place q = p;
    for (int i : {0, 2, 3}) {
      if (t.sizes[i] == 1) q[i] = 0;
    }
    q[1] = p[1] / (sizes[1] / t.sizes[1]);
    return Element(tensor, q);
  }

  void Multiply(const GraphStep& step) {
    const Place sizes = At(step.output).sizes;
    const int64_t inner = At(step.inputs[0]).sizes[3];
    EXPECT_EQ(inner, At(step.inputs[1]).sizes[2]);
    ForEach(sizes, [&](const Place& p) {
      double sum = 0;
      for (int64_t i = 0; i < inner; ++i) {
        sum += Read(step.inputs[0], {p[0], p[1], p[2], i}, sizes) *
               Read(step.inputs[1], {p[0], p[1], i, p[3]}, sizes);
      }
      Element(step.output, p) = sum;
    });
  }
  void Reduce(const GraphStep& step, bool largest) {
    const Place from = At(step.inputs[0]).sizes, to = At(step.output).sizes;
    ForEach(to, [&](const Place& p) {
      Element(step.output, p) = largest ? -INFINITY : 0;
    });
    ForEach(from, [&](const Place& p) {
      Place q = p;
      for (int i = 0; i < 4; ++i) q[i] = p[i] / (from[i] / to[i]);
      double& sum = Element(step.output, q);
      const double x = Element(step.inputs[0], p);
      sum = largest ? std::max(sum, x) : sum + x;
    });
  }
  void Do(const GraphStep& step) {
    using K = GraphKind;
    const GraphTensor& out = At(step.output);
    if (out.role == GraphRole::kWithin) {
      EXPECT_TRUE(within_[step.output].empty()) << "written twice";
      within_[step.output].resize(Packed(out.sizes, 0) * out.sizes[0]);
    }
    if (step.kind == K::kProduct) return Multiply(step);
    if (step.kind == K::kLargest) return Reduce(step, true);
    if (step.kind == K::kSum) return Reduce(step, false);
    ForEach(out.sizes, [&](const Place& p) {
      double x[3] = {};
      for (size_t i = 0; i < step.inputs.size(); ++i) {
        x[i] = Read(step.inputs[i], p, out.sizes);
      }
      Element(step.output, p) = ByElement(step.kind, p, x);
    });
  }
  static double ByElement(GraphKind kind, const Place& p, const double* x) {
    using K = GraphKind;
    switch (kind) {
      case K::kMultiply:
        return x[0] * x[1];
      case K::kAdd:
        return x[0] + x[1];
      case K::kSubtract:
        return x[0] - x[1];
      case K::kDivide:
        return x[0] / x[1];
      case K::kExp:
        return std::exp(x[0]);
      case K::kLog:
        return std::log(x[0]);
      case K::kRowNumber:
        return static_cast<double>(p[2]);
      case K::kColumnNumber:
        return static_cast<double>(p[3]);
      case K::kAtLeast:
        return x[0] >= x[1] ? 1 : 0;
      case K::kSelect:
        return x[2] != 0 ? x[0] : x[1];
      default:
        ADD_FAILURE() << "a kind that has no elements";
        return 0;
    }
  }

  const AttentionGraph& graph_;
  std::vector<Values> within_;
  const std::map<GraphRole, double*> memory_;
};

class AttentionGraphTest : public testing::TestWithParam<AttentionShape> {
 protected:
  AttentionGraphTest() {
    const uint64_t seed = std::random_device()();
    std::cout << "seed " << seed << std::endl;
    random_.seed(seed);
  }
  Values Random(int64_t count) {
    std::normal_distribution<double> normal;
    Values values(count);
    for (double& value : values) value = normal(random_);
    return values;
  }
  static void ExpectNear(const Values& actual, const Values& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      // The graph holds the scale as a float.
      ASSERT_NEAR(actual[i], expected[i], 3e-6) << "element " << i;
    }
  }

  std::mt19937_64 random_;
};

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionGraphTest,
                         testing::Values(AttentionShape{1, 1, 1, 1, 2},
                                         AttentionShape{2, 7, 3, 3, 6},
                                         AttentionShape{2, 9, 4, 2, 8},
                                         AttentionShape{3, 5, 4, 1, 4}));

TEST_P(AttentionGraphTest, ComputesTheDefinition) {
  const AttentionShape s = GetParam();
  const int64_t keys = s.head_count * s.head_dim;
  const int64_t values = keys + s.kv_head_count * s.head_dim;
  Values qkv = Random(s.rows() * s.qkv_size());
  Values out(s.rows() * s.out_size()), log_sum(s.rows() * s.head_count);
  Values expected_out = out, expected_log_sum = log_sum;
  PlainOps<double> plain;
  plain.Attention(s, qkv.data(), expected_out.data(), expected_log_sum.data());
  const AttentionGraph graph = MakeAttentionGraph(s);
  Evaluator(graph, {{GraphRole::kQueries, qkv.data()},
                    {GraphRole::kKeys, qkv.data() + keys},
                    {GraphRole::kValues, qkv.data() + values},
                    {GraphRole::kOut, out.data()},
                    {GraphRole::kLogSum, log_sum.data()}})
      .Run();
  ExpectNear(out, expected_out);
  ExpectNear(log_sum, expected_log_sum);
}

}  // namespace
}  // namespace atl::engine::cuda
