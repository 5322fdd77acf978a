// Compares each operation's gradient in f64 with central finite differences of
// its forward pass, on random inputs.

#include "worker/engine/ops/testing/plain_ops.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iostream>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "worker/engine/ops/ops.h"

namespace atl::engine {
namespace {

using Values = std::vector<double>;

class PlainOpsTest : public testing::Test {
 protected:
  PlainOpsTest() : seed_(std::random_device()()), random_(seed_) {
    std::cout << "seed " << seed_ << std::endl;
  }

  Values Random(int64_t count) {
    std::normal_distribution<double> normal;
    Values values(count);
    for (double& value : values) value = normal(random_);
    return values;
  }

  // Compares `gradient`, of sum(weights * forward()) in `input`, with finite
  // differences. `forward` reads `input`.
  static void HoldGradient(Values& input, const Values& gradient,
                           const Values& weights,
                           const std::function<Values()>& forward) {
    const auto value = [&] {
      const Values out = forward();
      EXPECT_EQ(out.size(), weights.size());
      double sum = 0;
      for (size_t i = 0; i < out.size(); ++i) sum += weights[i] * out[i];
      return sum;
    };
    ASSERT_EQ(gradient.size(), input.size());
    const double h = 1e-5;
    for (size_t i = 0; i < input.size(); ++i) {
      const double at = input[i];
      input[i] = at + h;
      const double above = value();
      input[i] = at - h;
      const double below = value();
      input[i] = at;
      ASSERT_NEAR(gradient[i], (above - below) / (2 * h),
                  1e-7 * (1 + std::abs(gradient[i])))
          << "element " << i;
    }
  }

  const uint64_t seed_;
  std::mt19937_64 random_;
  PlainOps<double> ops_;
};

TEST_F(PlainOpsTest, LinearGradientsAreFiniteDifferences) {
  const int64_t m = 3, n = 4, k = 5;
  Values x = Random(m * k), w = Random(n * k);
  const Values dy = Random(m * n);
  const auto forward = [&] {
    Values y(m * n);
    ops_.Linear(m, n, k, x.data(), w.data(), y.data());
    return y;
  };
  Values dx(m * k), dw(n * k);
  ops_.LinearBackwardInput(m, n, k, dy.data(), w.data(), dx.data());
  ops_.LinearBackwardWeight(m, n, k, dy.data(), x.data(), dw.data(), false);
  HoldGradient(x, dx, dy, forward);
  HoldGradient(w, dw, dy, forward);
  Values twice = dw;
  ops_.LinearBackwardWeight(m, n, k, dy.data(), x.data(), twice.data(), true);
  for (size_t i = 0; i < dw.size(); ++i) {
    EXPECT_NEAR(twice[i], 2 * dw[i], 1e-12);
  }
}

TEST_F(PlainOpsTest, RmsNormGradientsAreFiniteDifferences) {
  const int64_t rows = 3, channels = 6;
  Values x = Random(rows * channels), delta = Random(rows * channels);
  Values gain = Random(channels);
  const Values dy = Random(rows * channels);
  Values sum(rows * channels), rstd(rows);
  const auto forward = [&] {
    Values y(rows * channels);
    ops_.AddRmsNorm(rows, channels, 1e-3, x.data(), delta.data(), gain.data(),
                    sum.data(), y.data(), rstd.data());
    return y;
  };
  forward();
  Values ds(rows * channels), dgain(channels);
  ops_.RmsNormBackward(rows, channels, dy.data(), sum.data(), rstd.data(),
                       gain.data(), ds.data(), dgain.data(), false);
  HoldGradient(x, ds, dy, forward);
  HoldGradient(delta, ds, dy, forward);
  HoldGradient(gain, dgain, dy, forward);
}

TEST_F(PlainOpsTest, LayerNormGradientsAreFiniteDifferences) {
  const int64_t rows = 3, channels = 6;
  Values x = Random(rows * channels), gain = Random(channels);
  Values bias = Random(channels);
  const Values dy = Random(rows * channels);
  Values mean(rows), rstd(rows);
  const auto forward = [&] {
    Values y(rows * channels);
    ops_.LayerNorm(rows, channels, 1e-3, x.data(), gain.data(), bias.data(),
                   y.data(), mean.data(), rstd.data());
    return y;
  };
  forward();
  Values dx(rows * channels), dgain(channels), dbias(channels);
  ops_.LayerNormBackward(rows, channels, dy.data(), x.data(), mean.data(),
                         rstd.data(), gain.data(), dx.data(), dgain.data(),
                         dbias.data(), false);
  HoldGradient(x, dx, dy, forward);
  HoldGradient(gain, dgain, dy, forward);
  HoldGradient(bias, dbias, dy, forward);
}

TEST_F(PlainOpsTest, BiasAndPositionGradientsAreFiniteDifferences) {
  const int64_t rows = 6, length = 3, channels = 4;
  Values x = Random(rows * channels), delta = Random(rows * channels);
  Values bias = Random(channels), table = Random(length * channels);
  const Values dy = Random(rows * channels);
  const auto forward = [&] {
    Values y(rows * channels);
    ops_.AddRows(rows, channels, x.data(), delta.data(), bias.data(), y.data());
    ops_.AddBias(rows, channels, bias.data(), y.data());
    ops_.AddPositions(rows, length, channels, table.data(), y.data());
    return y;
  };
  Values dbias(channels, 9.0), dtable(length * channels, 0.0);
  ops_.BiasBackward(rows, channels, dy.data(), dbias.data(), false);
  ops_.BiasBackward(rows, channels, dy.data(), dbias.data(), true);
  ops_.PositionsBackward(rows, length, channels, dy.data(), dtable.data());
  HoldGradient(x, dy, dy, forward);
  HoldGradient(delta, dy, dy, forward);
  HoldGradient(bias, dbias, dy, forward);
  HoldGradient(table, dtable, dy, forward);
}

TEST_F(PlainOpsTest, GeluGradientIsAFiniteDifferenceAndTheTanhForm) {
  Values x = Random(20);
  const Values dy = Random(20);
  const auto forward = [&] {
    Values y(20);
    ops_.Gelu(20, x.data(), y.data());
    return y;
  };
  Values dx(20);
  ops_.GeluBackward(20, x.data(), dy.data(), dx.data());
  HoldGradient(x, dx, dy, forward);
  const Values y = forward();
  for (size_t i = 0; i < x.size(); ++i) {
    const double u =
        std::sqrt(2 / M_PI) * (x[i] + 0.044715 * x[i] * x[i] * x[i]);
    EXPECT_NEAR(y[i], 0.5 * x[i] * (1 + std::tanh(u)), 1e-14);
  }
}

// A mixture whose expert e multiplies by e + 1, with its balance loss.
TEST_F(PlainOpsTest, RoutingGradientIsAFiniteDifference) {
  const int64_t rows = 5, n = 4, channels = 3;
  for (int64_t k : {1, 2, 4}) {
    const RouteShape shape{.rows = rows,
                           .expert_count = n,
                           .experts_per_token = k,
                           .group_rows = rows,
                           .capacity = k == 2 ? 2 : rows};
    Values logits = Random(rows * n), x = Random(rows * channels);
    const Values dy = Random(rows * channels), balance = Random(n);
    Values p(rows * n), weights(rows * k), out(rows * k * channels);
    std::vector<int32_t> experts(rows * k), slots(rows * k), sources(rows * k);
    std::vector<int64_t> begins(n + 1);
    const auto forward = [&] {
      ops_.Route(shape, logits.data(), p.data(), experts.data(),
                 weights.data());
      ops_.PlanDispatch(shape, experts.data(), nullptr, slots.data(),
                        sources.data(), begins.data());
      ops_.GatherRows(begins[n], channels, sources.data(), x.data(),
                      out.data());
      for (int64_t e = 0; e < n; ++e) {
        for (int64_t i = begins[e] * channels; i < begins[e + 1] * channels;
             ++i) {
          out[i] *= static_cast<double>(e + 1);
        }
      }
      Values y(rows * channels + n);
      ops_.CombineRows(shape, channels, slots.data(), weights.data(),
                       out.data(), y.data());
      Values counts(n);
      ops_.AddRouteTotals(shape, p.data(), experts.data(), counts.data(),
                          y.data() + rows * channels);
      return y;
    };
    forward();
    if (k == 1) {
      for (double weight : weights) EXPECT_EQ(weight, 1.0);
    }
    Values upstream = dy;
    upstream.insert(upstream.end(), balance.begin(), balance.end());
    Values dout(out.size()), dweights(rows * k), dlogits(rows * n);
    ops_.CombineRowsBackward(shape, channels, slots.data(), weights.data(),
                             out.data(), dy.data(), dout.data(),
                             dweights.data());
    ops_.RouteBackward(shape, p.data(), experts.data(), weights.data(),
                       dweights.data(), balance.data(), dlogits.data());
    for (int64_t e = 0; e < n; ++e) {
      for (int64_t i = begins[e] * channels; i < begins[e + 1] * channels;
           ++i) {
        dout[i] *= static_cast<double>(e + 1);
      }
    }
    Values dx(rows * channels);
    ops_.CombineRows(shape, channels, slots.data(), nullptr, dout.data(),
                     dx.data());
    HoldGradient(logits, dlogits, upstream, forward);
    HoldGradient(x, dx, upstream, forward);
  }
}

TEST_F(PlainOpsTest, ExpertsTakeWhatComesFirstUpToTheirCapacity) {
  const RouteShape shape{.rows = 4,
                         .expert_count = 3,
                         .experts_per_token = 2,
                         .group_rows = 4,
                         .capacity = 2};
  const std::vector<int32_t> experts = {2, 0, 0, 2, 2, 0, 1, 2};
  std::vector<int32_t> slots(8), sources(8);
  std::vector<int64_t> begins(4);
  ops_.PlanDispatch(shape, experts.data(), nullptr, slots.data(),
                    sources.data(), begins.data());
  EXPECT_EQ(begins, (std::vector<int64_t>{0, 2, 3, 5}));
  EXPECT_EQ(slots, (std::vector<int32_t>{3, 0, 1, 4, -1, -1, 2, -1}));
  sources.resize(5);
  EXPECT_EQ(sources, (std::vector<int32_t>{0, 1, 3, 0, 1}));
}

TEST_F(PlainOpsTest, GroupsOfRowsHaveACapacityEachLessWhatCameBefore) {
  const RouteShape shape{.rows = 4,
                         .expert_count = 3,
                         .experts_per_token = 2,
                         .group_rows = 2,
                         .capacity = 1};
  const std::vector<int32_t> experts = {2, 0, 0, 2, 2, 0, 1, 2};
  std::vector<int32_t> slots(8), sources(8);
  std::vector<int64_t> begins(4);
  ops_.PlanDispatch(shape, experts.data(), nullptr, slots.data(),
                    sources.data(), begins.data());
  EXPECT_EQ(begins, (std::vector<int64_t>{0, 2, 3, 5}));
  EXPECT_EQ(slots, (std::vector<int32_t>{3, 0, -1, -1, 4, 1, 2, -1}));
  sources.resize(5);
  EXPECT_EQ(sources, (std::vector<int32_t>{0, 2, 3, 0, 2}));

  Values counts(6, 7.0);
  ops_.CountChoices(shape, experts.data(), counts.data());
  EXPECT_EQ(counts, (Values{2, 0, 2, 1, 1, 2}));
  // Before the second group: one choice of expert 0, too many of expert 1.
  const Values before = {0, 0, 0, 1, 5, 0};
  ops_.PlanDispatch(shape, experts.data(), before.data(), slots.data(),
                    sources.data(), begins.data());
  EXPECT_EQ(begins, (std::vector<int64_t>{0, 1, 1, 3}));
  EXPECT_EQ(slots, (std::vector<int32_t>{1, 0, -1, -1, 2, -1, -1, -1}));
}

TEST_F(PlainOpsTest, OfEquallyLikelyExpertsTheLowerOnesAreTaken) {
  const RouteShape shape{
      .rows = 1, .expert_count = 4, .experts_per_token = 2};
  const Values logits = {0.5, 1.0, 1.0, 1.0};
  Values p(4), weights(2);
  std::vector<int32_t> experts(2);
  ops_.Route(shape, logits.data(), p.data(), experts.data(), weights.data());
  EXPECT_EQ(experts, (std::vector<int32_t>{1, 2}));
  EXPECT_NEAR(weights[0], 0.5, 1e-15);
}

TEST_F(PlainOpsTest, RopeTurnsHalvesAndItsInverseIsItsGradient) {
  const AttentionShape shape{.batch = 2,
                             .sequence_length = 3,
                             .head_count = 2,
                             .kv_head_count = 1,
                             .head_dim = 4};
  Values table;
  for (int t = 0; t < 3; ++t) {
    for (int i = 0; i < 2; ++i) table.push_back(std::cos(t * (i + 0.5)));
    for (int i = 0; i < 2; ++i) table.push_back(std::sin(t * (i + 0.5)));
  }
  Values qkv = Random(shape.rows() * shape.qkv_size());
  const auto forward = [&] {
    Values turned = qkv;
    ops_.Rope(shape, table.data(), false, turned.data());
    return turned;
  };
  const Values dy = Random(qkv.size());
  Values dqkv = dy;
  ops_.Rope(shape, table.data(), true, dqkv.data());
  HoldGradient(qkv, dqkv, dy, forward);
  // Values, and the first position of each sequence, do not change.
  const Values turned = forward();
  for (int64_t r = 0; r < shape.rows(); ++r) {
    for (int64_t i = 0; i < shape.qkv_size(); ++i) {
      const int64_t at = r * shape.qkv_size() + i;
      if (i >= 3 * 4 || r % 3 == 0) {
        EXPECT_EQ(turned[at], qkv[at]);
      }
    }
  }
}

TEST_F(PlainOpsTest, AttentionGradientIsAFiniteDifference) {
  const AttentionShape shape{.batch = 2,
                             .sequence_length = 5,
                             .head_count = 4,
                             .kv_head_count = 2,
                             .head_dim = 4};
  Values qkv = Random(shape.rows() * shape.qkv_size());
  const Values dout = Random(shape.rows() * shape.out_size());
  Values out(dout.size()), log_sum(shape.rows() * shape.head_count);
  const auto forward = [&] {
    ops_.Attention(shape, qkv.data(), out.data(), log_sum.data());
    return out;
  };
  forward();
  Values dqkv(qkv.size());
  ops_.AttentionBackward(shape, qkv.data(), out.data(), log_sum.data(),
                         dout.data(), dqkv.data());
  HoldGradient(qkv, dqkv, dout, forward);
}

TEST_F(PlainOpsTest, SwiGluGradientIsAFiniteDifference) {
  const int64_t rows = 3, inner = 5;
  Values gate_up = Random(rows * 2 * inner);
  const Values dy = Random(rows * inner);
  const auto forward = [&] {
    Values y(rows * inner);
    ops_.SwiGlu(rows, inner, gate_up.data(), y.data());
    return y;
  };
  Values gradient(gate_up.size());
  ops_.SwiGluBackward(rows, inner, gate_up.data(), dy.data(), gradient.data());
  HoldGradient(gate_up, gradient, dy, forward);
}

TEST_F(PlainOpsTest, EmbeddingGradientIsAFiniteDifference) {
  const int64_t vocab = 4, channels = 3;
  const std::vector<int32_t> tokens = {1, 3, 1, 0};
  Values table = Random(vocab * channels);
  const Values dy = Random(4 * channels);
  const auto forward = [&] {
    Values out(4 * channels);
    ops_.Embedding(4, 0, vocab, channels, tokens.data(), table.data(),
                   out.data());
    return out;
  };
  Values gradient(table.size(), 0.0);
  ops_.EmbeddingBackward(4, 0, vocab, channels, tokens.data(), dy.data(),
                         gradient.data());
  HoldGradient(table, gradient, dy, forward);
}

TEST_F(PlainOpsTest, CrossEntropyGradientIsAFiniteDifference) {
  const int64_t rows = 3, vocab = 7;
  const std::vector<int32_t> targets = {0, 6, 3};
  Values logits = Random(rows * vocab);
  const double scale = 0.4;
  const auto forward = [&] {
    Values losses(rows);
    ops_.CrossEntropy(rows, vocab, logits.data(), targets.data(),
                      losses.data());
    return losses;
  };
  Values gradient = logits, losses(rows);
  ops_.CrossEntropyBackward(rows, vocab, scale, gradient.data(), targets.data(),
                            losses.data());
  EXPECT_EQ(losses, forward());
  HoldGradient(logits, gradient, Values(rows, scale), forward);
}

TEST_F(PlainOpsTest, CausalAttentionIsThatOfItsHalvesMerged) {
  // The second half of each sequence attends to itself, then to the first half.
  const int64_t batch = 2, half = 4, h = 4, g = 2, d = 6;
  const AttentionShape whole{batch, 2 * half, h, g, d};
  const AttentionBlock block{
      .shape = {batch, half, h, g, d}, .query_count = half, .key_count = half};
  const AttentionShape& part = block.shape;
  const int64_t width = whole.qkv_size(), kv = block.kv_size();
  const Values qkv = Random(whole.rows() * width);
  const Values dout = Random(whole.rows() * whole.out_size());
  Values out(dout.size()), log_sum(whole.rows() * h), dqkv(qkv.size());
  ops_.Attention(whole, qkv.data(), out.data(), log_sum.data());
  ops_.AttentionBackward(whole, qkv.data(), out.data(), log_sum.data(),
                         dout.data(), dqkv.data());
  // Rows of half `i`, from channel `column` on.
  const auto cut = [&](const Values& from, int64_t i, int64_t row_size,
                       int64_t column) {
    Values to(batch * half * (row_size - column));
    for (int64_t b = 0; b < batch; ++b) {
      ops_.CopyColumns(half, row_size - column,
                       &from[(2 * b + i) * half * row_size + column], row_size,
                       &to[b * half * (row_size - column)], row_size - column);
    }
    return to;
  };
  const auto near = [](const Values& a, const Values& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-12) << i;
  };
  const Values own = cut(qkv, 1, width, 0), other = cut(qkv, 0, width, h * d);
  const Values own_dout = cut(dout, 1, h * d, 0);
  Values own_out(part.rows() * h * d), own_sum(part.rows() * h);
  ops_.Attention(part, own.data(), own_out.data(), own_sum.data());
  ops_.AttendBlock(block, own.data(), other.data(), own_out.data(),
                   own_sum.data());
  near(own_out, cut(out, 1, h * d, 0));
  Values own_dqkv(own.size()), other_dkv(other.size());
  ops_.AttentionBackward(part, own.data(), own_out.data(), own_sum.data(),
                         own_dout.data(), own_dqkv.data());
  ops_.AttendBlockBackward(block, own.data(), other.data(), own_out.data(),
                           own_sum.data(), own_dout.data(), own_dqkv.data(),
                           other_dkv.data());
  near(own_dqkv, cut(dqkv, 1, width, 0));
  // Adds the first half's own gradients of keys and values.
  const Values first = cut(qkv, 0, width, 0), first_out = cut(out, 0, h * d, 0);
  Values sums(part.rows() * h), again(first_out.size()), dfirst(first.size());
  ops_.Attention(part, first.data(), again.data(), sums.data());
  ops_.AttentionBackward(part, first.data(), again.data(), sums.data(),
                         cut(dout, 0, h * d, 0).data(), dfirst.data());
  for (int64_t r = 0; r < part.rows(); ++r) {
    for (int64_t i = 0; i < kv; ++i) {
      other_dkv[r * kv + i] += dfirst[r * width + h * d + i];
    }
  }
  near(other_dkv, cut(dqkv, 0, width, h * d));
}

TEST_F(PlainOpsTest, CrossEntropyIsThatOfItsSlicesReduced) {
  const int64_t rows = 5, vocab = 9, cut = 4;
  const std::vector<int32_t> targets = {0, 3, 4, 8, 5};
  const Values logits = Random(rows * vocab);
  Values expected = logits, losses(rows);
  ops_.CrossEntropyBackward(rows, vocab, 0.5, expected.data(), targets.data(),
                            losses.data());
  Values parts[2], tops[2], sums[2], at_target[2];
  const int64_t begins[] = {0, cut}, counts[] = {cut, vocab - cut};
  for (int i : {0, 1}) {
    parts[i].resize(rows * counts[i]);
    for (Values* values : {&tops[i], &sums[i], &at_target[i]}) {
      values->resize(rows);
    }
    ops_.CopyColumns(rows, counts[i], &logits[begins[i]], vocab,
                     parts[i].data(), counts[i]);
    ops_.LogitTops(rows, counts[i], parts[i].data(), tops[i].data());
  }
  for (int64_t r = 0; r < rows; ++r) {
    tops[0][r] = std::max(tops[0][r], tops[1][r]);
  }
  for (int i : {0, 1}) {
    ops_.LogitSums(rows, begins[i], counts[i], parts[i].data(), targets.data(),
                   tops[0].data(), sums[i].data(), at_target[i].data());
  }
  ops_.Axpy(rows, 1.0, sums[1].data(), sums[0].data());
  ops_.Axpy(rows, 1.0, at_target[1].data(), at_target[0].data());
  Values merged(rows);
  ops_.LogitLosses(rows, tops[0].data(), sums[0].data(), at_target[0].data(),
                   merged.data());
  for (int i : {0, 1}) {
    ops_.LogitGradients(rows, begins[i], counts[i], 0.5, targets.data(),
                        tops[0].data(), sums[0].data(), parts[i].data());
    for (int64_t r = 0; r < rows; ++r) {
      EXPECT_NEAR(merged[r], losses[r], 1e-12);
      for (int64_t c = 0; c < counts[i]; ++c) {
        ASSERT_NEAR(parts[i][r * counts[i] + c],
                    expected[r * vocab + begins[i] + c], 1e-12);
      }
    }
  }
}

}  // namespace
}  // namespace atl::engine
