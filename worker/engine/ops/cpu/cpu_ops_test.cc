// Compares CpuOps with PlainOps<double>, and its bits with those of one thread,
// on random inputs and for each set of kernels.

#include "worker/engine/ops/cpu/cpu_ops.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/engine/ops/cpu/kernels.h"
#include "worker/engine/ops/cpu/products.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/ops/testing/plain_ops.h"

namespace atl::engine {
namespace {

uint64_t Seed() {
  static const uint64_t seed = [] {
    const uint64_t fresh = std::random_device()();
    std::cout << "seed " << fresh << std::endl;
    return fresh;
  }();
  return seed;
}

class CpuOpsTest : public testing::TestWithParam<const Kernels*> {
 protected:
  CpuOpsTest() : random_(Seed()) {}

  void SetUp() override {
    if (std::string(GetParam()->name) == "avx512" && !HasAvx512()) {
      GTEST_SKIP() << "this CPU has no AVX-512";
    }
  }

  std::vector<float> Random(int64_t count, float scale = 1.0f) {
    std::normal_distribution<float> normal(0.0f, scale);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random_);
    return values;
  }
  std::vector<int32_t> RandomTokens(int64_t count, int64_t vocab) {
    std::uniform_int_distribution<int32_t> token(0, vocab - 1);
    std::vector<int32_t> tokens(count);
    for (int32_t& t : tokens) t = token(random_);
    return tokens;
  }
  int64_t Between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  // An operation on `buffers`, for any element type.
  template <typename T>
  using Call = std::function<void(BasicOps<T>&, std::vector<std::vector<T>>&)>;

  // Runs `call` on PlainOps in f64 and on CpuOps in f32 with 1, 2 and 3
  // threads. All buffers must agree within `tolerance` of their largest value.
  // Bits must not depend on the thread count.
  template <typename F>
  void Hold(const std::vector<std::vector<float>>& buffers, const F& call,
            double tolerance = 1e-5) {
    std::vector<std::vector<double>> expected;
    for (const auto& b : buffers) expected.emplace_back(b.begin(), b.end());
    PlainOps<double> plain;
    call(plain, expected);
    std::vector<std::vector<float>> first;
    for (int threads : {1, 2, 3}) {
      std::vector<std::vector<float>> actual = buffers;
      const std::unique_ptr<Ops> ops = MakeCpuOps(threads, *GetParam());
      call(*ops, actual);
      if (threads == 1) {
        first = actual;
        for (size_t b = 0; b < actual.size(); ++b) {
          Compare(b, actual[b], expected[b], tolerance);
        }
      }
      for (size_t b = 0; b < actual.size(); ++b) {
        ASSERT_EQ(std::memcmp(actual[b].data(), first[b].data(),
                              actual[b].size() * sizeof(float)),
                  0)
            << "buffer " << b << " with " << threads << " threads";
      }
    }
  }

  static void Compare(size_t buffer, const std::vector<float>& actual,
                      const std::vector<double>& expected, double tolerance) {
    double largest = 0;
    for (double e : expected) largest = std::max(largest, std::abs(e));
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_LE(std::abs(actual[i] - expected[i]),
                tolerance * (std::abs(expected[i]) + 0.1 * largest + 1e-30))
          << "buffer " << buffer << " element " << i << ": " << actual[i]
          << ", by definition " << expected[i];
    }
  }

  std::mt19937_64 random_;
};

INSTANTIATE_TEST_SUITE_P(Isa, CpuOpsTest,
                         testing::Values(&Avx2Kernels(), &Avx512Kernels()),
                         [](const auto& info) { return info.param->name; });

struct LinearShape {
  int64_t m, n, k;
};

std::vector<LinearShape> LinearShapes(int64_t fresh) {
  return {{1, 1, 1},     {1, 40, 24},    {7, 5, 3},        {33, 17, 65},
          {300, 96, 32}, {512, 384, 48}, {520, 700, fresh}};
}

TEST_P(CpuOpsTest, LinearMapsAndTheirGradientsFollowTheDefinition) {
  for (const auto& [m, n, k] : LinearShapes(Between(1, 80))) {
    SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k);
    const auto run = [m = m, n = n, k = k](auto& ops, auto& b) {
      ops.Linear(m, n, k, b[0].data(), b[1].data(), b[2].data());
      ops.LinearBackwardInput(m, n, k, b[3].data(), b[1].data(), b[4].data());
      ops.LinearBackwardWeight(m, n, k, b[3].data(), b[0].data(), b[5].data(),
                               false);
      ops.LinearBackwardWeight(m, n, k, b[3].data(), b[0].data(), b[6].data(),
                               true);
    };
    Hold({Random(m * k), Random(n * k), Random(m * n), Random(m * n),
          Random(m * k), Random(n * k), Random(n * k)},
         run);
  }
}

float NearestBf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint32_t low = bits & 0xffffu, half = 0x8000u;
  bits &= 0xffff0000u;
  if (low > half || (low == half && (bits & 0x10000u) != 0)) bits += 0x10000u;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

TEST_P(CpuOpsTest, RoundsToTheNearestBf16TiesToEven) {
  std::vector<float> x = Random(1000 + Between(0, 40));
  const uint32_t ties[] = {0x3f808000u, 0x3f818000u, 0x3f80ffffu, 0xbf808001u,
                           0x7f7fffffu, 0x00008000u, 0x80018000u};
  for (size_t i = 0; i < std::size(ties); ++i) {
    std::memcpy(&x[i * 3], &ties[i], sizeof(float));
  }
  const int64_t n = static_cast<int64_t>(x.size());
  std::vector<float> rounded(n);
  std::vector<uint16_t> narrow(n);
  GetParam()->round_to_bf16(n, x.data(), rounded.data());
  GetParam()->to_bf16(n, x.data(), narrow.data());
  for (int64_t i = 0; i < n; ++i) {
    ASSERT_EQ(rounded[i], NearestBf16(x[i])) << x[i];
    uint32_t bits;
    std::memcpy(&bits, &rounded[i], sizeof(bits));
    ASSERT_EQ(bits, uint32_t{narrow[i]} << 16) << x[i];
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  GetParam()->round_to_bf16(1, &nan, rounded.data());
  EXPECT_TRUE(std::isnan(rounded[0]));
}

TEST_P(CpuOpsTest, Bf16ProductsAreThoseOfRoundedOperands) {
  for (ProductKind kind :
       {ProductKind::kBf16Rounded, ProductKind::kBf16Native}) {
    if (kind == ProductKind::kBf16Native && !HasBf16Products()) continue;
    for (const auto& [m, n, k] : LinearShapes(Between(1, 80))) {
      SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k);
      const std::vector<float> x = Random(m * k), w = Random(n * k);
      const std::vector<float> dy = Random(m * n), dw = Random(n * k);
      const auto run = [m = m, n = n, k = k](auto& ops, auto& b) {
        ops.Linear(m, n, k, b[0].data(), b[1].data(), b[3].data());
        ops.LinearBackwardInput(m, n, k, b[2].data(), b[1].data(), b[4].data());
        ops.LinearBackwardWeight(m, n, k, b[2].data(), b[0].data(), b[5].data(),
                                 false);
        ops.LinearBackwardWeight(m, n, k, b[2].data(), b[0].data(), b[6].data(),
                                 true);
        // ParametersChanged makes the products read the weight again.
        for (auto& value : b[1]) value = value * 2;
        ops.ParametersChanged();
        ops.Linear(m, n, k, b[0].data(), b[1].data(), b[7].data());
      };
      std::vector<std::vector<float>> buffers = {x,
                                                 w,
                                                 dy,
                                                 Random(m * n),
                                                 Random(m * k),
                                                 Random(n * k),
                                                 dw,
                                                 Random(m * n)};
      std::vector<std::vector<double>> expected;
      for (size_t b = 0; b < buffers.size(); ++b) {
        expected.emplace_back(buffers[b].begin(), buffers[b].end());
        if (b > 2) continue;
        for (double& e : expected[b]) e = NearestBf16(static_cast<float>(e));
      }
      PlainOps<double> plain;
      run(plain, expected);
      std::vector<std::vector<float>> first;
      for (int threads : {1, 2, 3}) {
        std::vector<std::vector<float>> actual = buffers;
        const std::unique_ptr<Ops> ops = MakeCpuOps(threads, *GetParam(), kind);
        run(*ops, actual);
        if (threads == 1) first = actual;
        for (size_t b : {3, 4, 5, 6, 7}) {
          Compare(b, actual[b], expected[b], 1e-5);
          ASSERT_EQ(actual[b], first[b]) << b << " with " << threads;
        }
      }
    }
  }
}

TEST_P(CpuOpsTest, RmsNormAndItsGradientFollowTheDefinition) {
  // With few channels the gradient is a small difference of large numbers.
  const LinearShape shapes[] = {{1, 9, 0},
                                {3, 19, 0},
                                {70, 128, 0},
                                {Between(60, 300), Between(9, 100), 0}};
  for (const auto& [rows, c, unused] : shapes) {
    SCOPED_TRACE(testing::Message() << rows << " x " << c);
    for (bool with_delta : {true, false}) {
      for (bool accumulate : {true, false}) {
        const auto run = [=, rows = rows, c = c](auto& ops, auto& b) {
          ops.AddRmsNorm(rows, c, 1e-5, b[0].data(),
                         with_delta ? b[1].data() : nullptr, b[2].data(),
                         with_delta ? b[3].data() : nullptr, b[4].data(),
                         b[5].data());
          ops.RmsNormBackward(
              rows, c, b[6].data(), with_delta ? b[3].data() : b[0].data(),
              b[5].data(), b[2].data(), b[7].data(), b[8].data(), accumulate);
        };
        Hold({Random(rows * c), Random(rows * c), Random(c), Random(rows * c),
              Random(rows * c), Random(rows), Random(rows * c),
              Random(rows * c), Random(c)},
             run);
      }
    }
  }
}

TEST_P(CpuOpsTest, LayerNormAndItsGradientFollowTheDefinition) {
  const std::pair<int64_t, int64_t> shapes[] = {
      {1, 9}, {3, 19}, {70, 128}, {Between(60, 300), Between(9, 100)}};
  for (const auto& [rows, c] : shapes) {
    SCOPED_TRACE(testing::Message() << rows << " x " << c);
    for (bool accumulate : {true, false}) {
      const auto run = [=, rows = rows, c = c](auto& ops, auto& b) {
        ops.LayerNorm(rows, c, 1e-3, b[0].data(), b[1].data(), b[2].data(),
                      b[3].data(), b[4].data(), b[5].data());
        ops.LayerNormBackward(rows, c, b[6].data(), b[0].data(), b[4].data(),
                              b[5].data(), b[1].data(), b[7].data(),
                              b[8].data(), b[9].data(), accumulate);
      };
      Hold({Random(rows * c), Random(c), Random(c), Random(rows * c),
            Random(rows), Random(rows), Random(rows * c), Random(rows * c),
            Random(c), Random(c)},
           run, 3e-5);
    }
  }
}

TEST_P(CpuOpsTest, ResidualsBiasesAndPositionsFollowTheDefinition) {
  for (int64_t c : {int64_t{1}, int64_t{48}, Between(2, 90)}) {
    const int64_t length = Between(1, 80), rows = 3 * length;
    SCOPED_TRACE(testing::Message() << rows << " x " << c);
    const auto run = [=](auto& ops, auto& b) {
      ops.AddRows(rows, c, b[0].data(), b[1].data(), b[2].data(), b[3].data());
      using T = std::decay_t<decltype(b[0][0])>;
      ops.AddRows(rows, c, b[0].data(), b[1].data(),
                  static_cast<const T*>(nullptr), b[1].data());
      ops.AddBias(rows, c, b[2].data(), b[0].data());
      ops.AddPositions(rows, length, c, b[4].data(), b[0].data());
      ops.BiasBackward(rows, c, b[3].data(), b[5].data(), true);
      ops.BiasBackward(rows, c, b[3].data(), b[6].data(), false);
      ops.PositionsBackward(rows, length, c, b[3].data(), b[7].data());
    };
    Hold({Random(rows * c), Random(rows * c), Random(c), Random(rows * c),
          Random(length * c), Random(c), Random(c), Random(length * c)},
         run);
  }
}

TEST_P(CpuOpsTest, GeluAndItsGradientFollowTheDefinition) {
  for (int64_t n : {int64_t{1}, int64_t{20000}, Between(2, 5000)}) {
    const auto run = [=](auto& ops, auto& b) {
      ops.Gelu(n, b[0].data(), b[1].data());
      ops.GeluBackward(n, b[0].data(), b[2].data(), b[3].data());
      ops.GeluBackward(n, b[0].data(), b[2].data(), b[0].data());
    };
    Hold({Random(n, 3.0f), Random(n), Random(n), Random(n)}, run);
  }
}

TEST_P(CpuOpsTest, AMixtureAndItsGradientFollowTheDefinition) {
  for (int64_t k : {int64_t{1}, int64_t{2}, int64_t{7}}) {
    const int64_t c = Between(1, 60), n = Between(k, 20);
    const int64_t groups = Between(1, 5), of_group = Between(1, 60);
    const int64_t rows = groups * of_group;
    const RouteShape shape{.rows = rows,
                           .expert_count = n,
                           .experts_per_token = k,
                           .group_rows = of_group,
                           .capacity = std::max<int64_t>(1, of_group * k / n)};
    std::vector<float> before(groups * n);
    for (float& count : before) count = static_cast<float>(Between(0, 3));
    SCOPED_TRACE(testing::Message() << groups << " x " << of_group << " rows, "
                                    << k << " of " << n << ", " << c);
    const auto run = [=](auto& ops, auto& b) {
      std::vector<int32_t> experts(rows * k), slots(rows * k),
          sources(rows * k);
      std::vector<int64_t> begins(n + 1);
      ops.Route(shape, b[0].data(), b[1].data(), experts.data(), b[2].data());
      ops.AddRouteTotals(shape, b[1].data(), experts.data(), b[3].data(),
                         b[4].data());
      ops.CountChoices(shape, experts.data(), b[12].data());
      ops.PlanDispatch(shape, experts.data(),
                       k == 1 ? nullptr : b[11].data(), slots.data(),
                       sources.data(), begins.data());
      ops.GatherRows(begins[n], c, sources.data(), b[5].data(), b[6].data());
      ops.CombineRows(shape, c, slots.data(), b[2].data(), b[6].data(),
                      b[7].data());
      ops.CombineRowsBackward(shape, c, slots.data(), b[2].data(), b[6].data(),
                              b[5].data(), b[6].data(), b[8].data());
      ops.RouteBackward(shape, b[1].data(), experts.data(), b[2].data(),
                        b[8].data(), b[9].data(), b[10].data());
    };
    Hold({Random(rows * n), Random(rows * n), Random(rows * k), Random(n),
          Random(n), Random(rows * c), Random(rows * k * c), Random(rows * c),
          Random(rows * k), Random(n), Random(rows * n), before,
          Random(groups * n)},
         run, 3e-5);
  }
}

std::vector<AttentionShape> AttentionShapes(int64_t fresh) {
  return {
      {1, 1, 1, 1, 2},      {2, 5, 2, 1, 6},    {1, 48, 4, 2, 8},
      {2, 49, 4, 4, 16},    {1, 128, 2, 1, 32}, {2, 131, 6, 2, 20},
      {1, fresh, 3, 1, 48},
  };
}

TEST_P(CpuOpsTest, RopeFollowsTheDefinitionAndTurnsBack) {
  for (const AttentionShape& s : AttentionShapes(Between(1, 100))) {
    SCOPED_TRACE(testing::Message() << s.sequence_length << ", " << s.head_dim);
    std::vector<float> table(s.sequence_length * s.head_dim);
    for (int64_t t = 0; t < s.sequence_length; ++t) {
      for (int64_t i = 0; i < s.head_dim / 2; ++i) {
        table[t * s.head_dim + i] = std::cos(t * 0.1f + i);
        table[t * s.head_dim + s.head_dim / 2 + i] = std::sin(t * 0.1f + i);
      }
    }
    const std::vector<float> qkv = Random(s.rows() * s.qkv_size());
    Hold({table, qkv, qkv}, [&](auto& ops, auto& b) {
      ops.Rope(s, b[0].data(), false, b[1].data());
      ops.Rope(s, b[0].data(), true, b[2].data());
    });
    const std::unique_ptr<Ops> ops = MakeCpuOps(1, *GetParam());
    std::vector<float> turned = qkv;
    ops->Rope(s, table.data(), false, turned.data());
    ops->Rope(s, table.data(), true, turned.data());
    for (size_t i = 0; i < qkv.size(); ++i) {
      ASSERT_NEAR(turned[i], qkv[i], 1e-5 * (1 + std::abs(qkv[i])));
    }
  }
}

TEST_P(CpuOpsTest, AttentionAndItsGradientFollowTheDefinition) {
  for (const AttentionShape& s : AttentionShapes(Between(1, 200))) {
    SCOPED_TRACE(testing::Message()
                 << "B " << s.batch << " T " << s.sequence_length << " H "
                 << s.head_count << " G " << s.kv_head_count << " D "
                 << s.head_dim);
    const auto run = [&s](auto& ops, auto& b) {
      ops.Attention(s, b[0].data(), b[1].data(), b[2].data());
      ops.AttentionBackward(s, b[0].data(), b[1].data(), b[2].data(),
                            b[3].data(), b[4].data());
    };
    Hold({Random(s.rows() * s.qkv_size(), 2.0f),
          Random(s.rows() * s.out_size()), Random(s.rows() * s.head_count),
          Random(s.rows() * s.out_size()), Random(s.rows() * s.qkv_size())},
         run, 3e-5);
  }
}

TEST_P(CpuOpsTest, AttentionOfABlockAndItsGradientFollowTheDefinition) {
  for (const AttentionShape& s : AttentionShapes(Between(2, 200))) {
    const int64_t length = s.sequence_length, half = length / 2;
    AttentionBlock block{.shape = s};
    block.query_begin = Between(0, half);
    block.query_count = Between(1, length - block.query_begin);
    block.key_begin = Between(0, half);
    block.key_count = Between(1, length - block.key_begin);
    SCOPED_TRACE(testing::Message()
                 << "B " << s.batch << " T " << length << " H " << s.head_count
                 << " G " << s.kv_head_count << " D " << s.head_dim
                 << " queries " << block.query_begin << " + "
                 << block.query_count << " keys " << block.key_begin << " + "
                 << block.key_count);
    const auto run = [&](auto& ops, auto& b) {
      ops.Attention(s, b[0].data(), b[1].data(), b[2].data());
      ops.AttendBlock(block, b[0].data(), b[3].data(), b[1].data(),
                      b[2].data());
      ops.AttendBlockBackward(block, b[0].data(), b[3].data(), b[1].data(),
                              b[2].data(), b[4].data(), b[5].data(),
                              b[6].data());
    };
    const int64_t kv = s.rows() * block.kv_size();
    Hold({Random(s.rows() * s.qkv_size(), 2.0f),
          Random(s.rows() * s.out_size()), Random(s.rows() * s.head_count),
          Random(kv, 2.0f), Random(s.rows() * s.out_size()),
          Random(s.rows() * s.qkv_size()), Random(kv)},
         run, 3e-5);
  }
}

TEST_P(CpuOpsTest, SwiGluAndItsGradientFollowTheDefinition) {
  const int64_t fresh = Between(1, 150);
  for (int64_t inner : {int64_t{1}, int64_t{40}, fresh}) {
    const int64_t rows = 70;
    SCOPED_TRACE(inner);
    const auto run = [=](auto& ops, auto& b) {
      ops.SwiGlu(rows, inner, b[0].data(), b[1].data());
      ops.SwiGluBackward(rows, inner, b[0].data(), b[2].data(), b[3].data());
      // In place, as the model calls it.
      ops.SwiGluBackward(rows, inner, b[0].data(), b[2].data(), b[0].data());
    };
    Hold({Random(rows * 2 * inner, 4.0f), Random(rows * inner),
          Random(rows * inner), Random(rows * 2 * inner)},
         run);
  }
}

TEST_P(CpuOpsTest, EmbeddingAndItsGradientFollowTheDefinition) {
  const int64_t rows = 150, vocab = 37, channels = Between(1, 70);
  const std::vector<int32_t> tokens = RandomTokens(rows, vocab);
  const auto run = [&](auto& ops, auto& b) {
    ops.Embedding(rows, 0, vocab, channels, tokens.data(), b[0].data(),
                  b[1].data());
    ops.EmbeddingBackward(rows, 0, vocab, channels, tokens.data(), b[2].data(),
                          b[3].data());
  };
  Hold({Random(vocab * channels), Random(rows * channels),
        Random(rows * channels), Random(vocab * channels)},
       run);
}

TEST_P(CpuOpsTest, CrossEntropyAndItsGradientFollowTheDefinition) {
  for (int64_t vocab : {int64_t{2}, int64_t{256}, Between(3, 500)}) {
    SCOPED_TRACE(vocab);
    const int64_t rows = 130;
    const std::vector<int32_t> targets = RandomTokens(rows, vocab);
    const auto run = [&](auto& ops, auto& b) {
      ops.CrossEntropy(rows, vocab, b[0].data(), targets.data(), b[1].data());
      ops.CrossEntropyBackward(rows, vocab, 0.25, b[0].data(), targets.data(),
                               b[2].data());
    };
    Hold({Random(rows * vocab, 5.0f), Random(rows), Random(rows)}, run);
  }
}

TEST_P(CpuOpsTest, SlicesOfAVocabularyFollowTheDefinition) {
  for (int64_t count : {int64_t{1}, int64_t{64}, Between(2, 300)}) {
    const int64_t rows = 130, begin = Between(0, 40), channels = Between(1, 50);
    SCOPED_TRACE(testing::Message() << count << " from " << begin);
    const std::vector<int32_t> ids = RandomTokens(rows, begin + count + 20);
    const auto run = [&](auto& ops, auto& b) {
      ops.Embedding(rows, begin, count, channels, ids.data(), b[0].data(),
                    b[1].data());
      ops.EmbeddingBackward(rows, begin, count, channels, ids.data(),
                            b[2].data(), b[3].data());
      ops.LogitTops(rows, count, b[4].data(), b[5].data());
      ops.LogitSums(rows, begin, count, b[4].data(), ids.data(), b[5].data(),
                    b[6].data(), b[7].data());
      ops.LogitLosses(rows, b[5].data(), b[6].data(), b[7].data(), b[8].data());
      ops.LogitGradients(rows, begin, count, 0.25, ids.data(), b[5].data(),
                         b[6].data(), b[4].data());
      ops.CopyColumns(rows - 1, 1, b[9].data() + channels - 1, channels,
                      b[10].data() + 1, 2);
      ops.ReadValues(rows, b[10].data(), b[11].data());
      ops.WriteValues(rows, b[11].data(), b[10].data() + rows);
    };
    Hold(
        {Random(count * channels), Random(rows * channels),
         Random(rows * channels), Random(count * channels),
         Random(rows * count, 5.0f), Random(rows), Random(rows), Random(rows),
         Random(rows), Random(rows * channels), Random(2 * rows), Random(rows)},
        run);
  }
}

TEST_P(CpuOpsTest, CrossEntropyLetsNoNanOrInfinityHide) {
  const int64_t vocab = 40;
  const std::unique_ptr<Ops> ops = MakeCpuOps(1, *GetParam());
  for (float bad : {std::numeric_limits<float>::quiet_NaN(),
                    std::numeric_limits<float>::infinity()}) {
    for (int64_t place : {int64_t{0}, int64_t{21}, vocab - 1}) {
      std::vector<float> logits = Random(vocab);
      logits[place] = bad;
      const int32_t target = 3;
      float loss = 0;
      ops->CrossEntropy(1, vocab, logits.data(), &target, &loss);
      EXPECT_FALSE(std::isfinite(loss)) << place;
      loss = 0;
      ops->CrossEntropyBackward(1, vocab, 1.0f, logits.data(), &target, &loss);
      EXPECT_FALSE(std::isfinite(loss)) << place;
    }
  }
}

TEST_P(CpuOpsTest, FlatOperationsFollowTheDefinition) {
  for (int64_t n : {int64_t{1}, int64_t{50000}, Between(2, 40000)}) {
    SCOPED_TRACE(n);
    AdamWStep<double> step{.learning_rate = 1e-2,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .epsilon = 1e-8,
                           .weight_decay = 0.1,
                           .bias_correction1 = 0.271,
                           .bias_correction2_sqrt = 0.377,
                           .gradient_scale = 0.5};
    std::vector<float> v = Random(n);
    for (float& x : v) x *= x;
    const auto run = [&](auto& ops, auto& b) {
      using T = std::decay_t<decltype(b[0][0])>;
      const AdamWStep<T> mine{T(step.learning_rate),
                              T(step.beta1),
                              T(step.beta2),
                              T(step.epsilon),
                              T(step.weight_decay),
                              T(step.bias_correction1),
                              T(step.bias_correction2_sqrt),
                              T(step.gradient_scale)};
      ops.Axpy(n, T(0.3), b[0].data(), b[1].data());
      ops.Sgd(n, T(0.1), T(0.5), b[0].data(), b[2].data());
      ops.AdamW(n, mine, b[0].data(), b[3].data(), b[4].data(), b[5].data());
      ops.SetZero(n, b[6].data());
      b[7][0] = static_cast<T>(ops.Sum(n, b[0].data()));
      b[7][1] = static_cast<T>(ops.SumOfSquares(n, b[0].data()));
    };
    Hold({Random(n), Random(n), Random(n), Random(n), Random(n), v, Random(n),
          Random(2)},
         run);
  }
}

TEST_P(CpuOpsTest, SgdMultipliesThenSubtractsWithoutAnFma) {
  const int64_t n = 1000;
  const std::vector<float> g = Random(n), p = Random(n);
  std::vector<float> stepped = p;
  MakeCpuOps(2, *GetParam())->Sgd(n, 0.37f, 1.0f, g.data(), stepped.data());
  for (int64_t i = 0; i < n; ++i) {
    const volatile float product = 0.37f * g[i];
    ASSERT_EQ(stepped[i], p[i] - product) << i;
  }
}

TEST_P(CpuOpsTest, ExponentialKeepsItsStatedError) {
  std::uniform_real_distribution<float> range(-87.3f, 88.3f);
  std::vector<float> x(100003);
  for (float& value : x) value = range(random_);
  std::vector<float> y = x;
  GetParam()->scaled_exp(y.size(), /*top=*/0, /*factor=*/1, y.data());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    worst = std::max(worst, std::abs(y[i] - exact) / exact);
  }
  EXPECT_LT(worst, std::ldexp(1.0, -22));
  float out[] = {0.0f, -200.0f, -std::numeric_limits<float>::infinity(),
                 std::numeric_limits<float>::quiet_NaN()};
  GetParam()->scaled_exp(4, /*top=*/0, /*factor=*/1, out);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], 0.0f);
  EXPECT_EQ(out[2], 0.0f);
  EXPECT_TRUE(std::isnan(out[3]));
}

}  // namespace
}  // namespace atl::engine
