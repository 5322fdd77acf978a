#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/kernels/loop_table.h"
#include "server/kernels/merge_kernels.h"
#include "server/kernels/testdata/outer_step_goldens.h"
#include "server/kernels/outer_steps.h"

namespace atl::kernels {
namespace {

uint32_t ToBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

std::vector<float> FromBits(const uint32_t* bits, int count) {
  std::vector<float> values(count);
  std::memcpy(values.data(), bits, count * sizeof(float));
  return values;
}

void ExpectBits(const std::vector<float>& values, const uint32_t* expected,
                const std::string& what) {
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(ToBits(values[i]), expected[i])
        << what << " of element " << i << " is " << values[i];
  }
}

std::vector<std::pair<std::string, const LoopTable*>> Tables() {
  std::vector<std::pair<std::string, const LoopTable*>> tables = {
      {"avx2", &Avx2Loops()}};
  if (HasAvx512()) tables.emplace_back("avx512", &Avx512Loops());
  return tables;
}

// --- PyTorch ----------------------------------------------------------------

TEST(OuterStepTest, SgdEqualsPyTorchBitForBit) {
  for (const auto& [name, table] : Tables()) {
    std::vector<float> theta = FromBits(goldens::kTheta0, goldens::kCount);
    for (int step = 0; step < goldens::kSteps; ++step) {
      const int row = step * goldens::kCount;
      const auto g = FromBits(goldens::kGradients + row, goldens::kCount);
      table->sgd(goldens::kCount, 0.7f, g.data(), theta.data());
      ExpectBits(theta, goldens::kSgdTheta + row, name + " theta");
    }
  }
}

using MomentumStepFn = void (*)(int64_t, float, float, const float*,
                                InOut<float>, InOut<float>);

void ExpectMomentumGoldens(const std::string& name, MomentumStepFn step_fn,
                           float lr, float momentum, const uint32_t* thetas,
                           const uint32_t* momenta) {
  std::vector<float> theta = FromBits(goldens::kTheta0, goldens::kCount);
  // The initial state of core/outer_optimizer.
  std::vector<float> m(goldens::kCount, -0.0f);
  for (int step = 0; step < goldens::kSteps; ++step) {
    const int row = step * goldens::kCount;
    const auto g = FromBits(goldens::kGradients + row, goldens::kCount);
    step_fn(goldens::kCount, lr, momentum, g.data(), theta.data(), m.data());
    ExpectBits(theta, thetas + row, name + " theta");
    ExpectBits(m, momenta + row, name + " momentum");
  }
}

TEST(OuterStepTest, MomentumEqualsPyTorchBitForBit) {
  for (const auto& [name, table] : Tables()) {
    ExpectMomentumGoldens(name, table->momentum, 0.7f, 0.9f,
                          goldens::kMomentumTheta, goldens::kMomentumMomentum);
  }
}

TEST(OuterStepTest, NesterovEqualsPyTorchBitForBit) {
  for (const auto& [name, table] : Tables()) {
    ExpectMomentumGoldens(name, table->nesterov, 0.7f, 0.9f,
                          goldens::kNesterovTheta, goldens::kNesterovMomentum);
    ExpectMomentumGoldens(name, table->nesterov, 0.0333f, 0.57f,
                          goldens::kNesterovSmallTheta,
                          goldens::kNesterovSmallMomentum);
  }
}

// --- The vectorised ones against the plain ones -----------------------------

class KernelTest : public testing::Test {
 protected:
  KernelTest() : seed_(std::random_device()()), random_(seed_) {
    RecordProperty("seed", std::to_string(seed_));
  }

  // Mostly ordinary numbers, sometimes any finite bit pattern.
  std::vector<float> Values(int count, float scale = 1.0f) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) {
      value = scale * normal(random_);
      if (random_() % 50 == 0) {
        const uint32_t bits = static_cast<uint32_t>(random_());
        float odd;
        std::memcpy(&odd, &bits, sizeof(odd));
        if (std::isfinite(odd) && std::abs(odd) < 1e15f) value = odd;
      }
      if (random_() % 50 == 0) value = random_() % 2 ? 0.0f : -0.0f;
    }
    return values;
  }

  int Count() { return static_cast<int>(random_() % 300); }

  std::string Seed() const { return "seed " + std::to_string(seed_); }

  const unsigned seed_;
  std::mt19937 random_;
};

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  if (a.empty()) return;  // memcmp must not get null.
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

TEST_F(KernelTest, VectorisedStepsHaveTheBitsOfThePlainOnes) {
  SCOPED_TRACE(Seed());
  const AdaptiveConstants<float> c = {0.1f, 0.9f, 0.1f, 0.99f, 0.01f, 1e-3f};
  const DelayedConstants<float> delayed = {0.7f, 0.9f, 4.0f, 0.09f, 0.63f};
  for (int repeat = 0; repeat < 50; ++repeat) {
    const int n = Count();
    const auto g = Values(n);
    const auto theta = Values(n);
    const auto m = Values(n);
    auto v = Values(n);
    for (float& value : v) value = std::abs(value);
    const auto run =
        [&](const std::function<void(float*, float*, float*)>& step) {
          auto t1 = theta, m1 = m, v1 = v;
          step(t1.data(), m1.data(), v1.data());
          t1.insert(t1.end(), m1.begin(), m1.end());
          t1.insert(t1.end(), v1.begin(), v1.end());
          return t1;
        };
    for (const auto& [name, table] : Tables()) {
      SCOPED_TRACE(name + " n " + std::to_string(n));
      const LoopTable& t = *table;
      ExpectSameBits(
          run([&](float* a, float*, float*) { t.sgd(n, 0.7f, g.data(), a); }),
          run([&](float* a, float*, float*) {
            SgdStepPlain(n, 0.7f, g.data(), a);
          }));
      ExpectSameBits(run([&](float* a, float* b, float*) {
                       t.momentum(n, 0.7f, 0.9f, g.data(), a, b);
                     }),
                     run([&](float* a, float* b, float*) {
                       MomentumStepPlain(n, 0.7f, 0.9f, g.data(), a, b);
                     }));
      ExpectSameBits(run([&](float* a, float* b, float*) {
                       t.nesterov(n, 0.7f, 0.9f, g.data(), a, b);
                     }),
                     run([&](float* a, float* b, float*) {
                       NesterovStepPlain(n, 0.7f, 0.9f, g.data(), a, b);
                     }));
      ExpectSameBits(run([&](float* a, float* b, float* d) {
                       t.fed_adam(n, c, g.data(), a, b, d);
                     }),
                     run([&](float* a, float* b, float* d) {
                       FedAdamStepPlain(n, c, g.data(), a, b, d);
                     }));
      ExpectSameBits(run([&](float* a, float* b, float* d) {
                       t.fed_yogi(n, c, g.data(), a, b, d);
                     }),
                     run([&](float* a, float* b, float* d) {
                       FedYogiStepPlain(n, c, g.data(), a, b, d);
                     }));
      ExpectSameBits(run([&](float* a, float* b, float* d) {
                       t.fed_adagrad(n, c, g.data(), a, b, d);
                     }),
                     run([&](float* a, float* b, float* d) {
                       FedAdagradStepPlain(n, c, g.data(), a, b, d);
                     }));
      for (const bool flush : {false, true}) {
        ExpectSameBits(run([&](float* a, float* b, float* d) {
                         t.delayed_nesterov(n, delayed, flush, g.data(), a, b,
                                            d);
                       }),
                       run([&](float* a, float* b, float* d) {
                         DelayedNesterovStepPlain(n, delayed, flush, g.data(),
                                                  a, b, d);
                       }));
      }
    }
  }
}

// Takes every step of `t`, each with its own theta, m and v.
void TakeEveryStep(const LoopTable& t, int n, const float* g,
                   const std::function<InOut<float>(int step, int array)>& a) {
  const AdaptiveConstants<float> c = {0.1f, 0.9f, 0.1f, 0.99f, 0.01f, 1e-3f};
  const DelayedConstants<float> delayed = {0.7f, 0.9f, 4.0f, 0.09f, 0.63f};
  t.sgd(n, 0.7f, g, a(0, 0));
  t.momentum(n, 0.7f, 0.9f, g, a(1, 0), a(1, 1));
  t.nesterov(n, 0.7f, 0.9f, g, a(2, 0), a(2, 1));
  t.fed_adam(n, c, g, a(3, 0), a(3, 1), a(3, 2));
  t.fed_yogi(n, c, g, a(4, 0), a(4, 1), a(4, 2));
  t.fed_adagrad(n, c, g, a(5, 0), a(5, 1), a(5, 2));
  t.delayed_nesterov(n, delayed, false, g, a(6, 0), a(6, 1), a(6, 2));
  t.delayed_nesterov(n, delayed, true, g, a(7, 0), a(7, 1), a(7, 2));
}

TEST_F(KernelTest, AStepFromOneArrayToAnotherHasTheBitsOfOneInPlace) {
  SCOPED_TRACE(Seed());
  constexpr int kStepCount = 8;
  for (int repeat = 0; repeat < 20; ++repeat) {
    const int n = Count();
    const auto g = Values(n);
    std::vector<float> from[3] = {Values(n), Values(n), Values(n)};
    for (float& value : from[2]) value = std::abs(value);
    const auto kept = std::to_array(from);
    for (const auto& [name, table] : Tables()) {
      SCOPED_TRACE(name + " n " + std::to_string(n));
      // Arrays that a step does not use stay equal on both sides.
      std::vector<std::array<std::vector<float>, 3>> in_place(kStepCount, kept);
      auto to = in_place;
      TakeEveryStep(*table, n, g.data(), [&](int step, int array) {
        return InOut<float>(in_place[step][array].data());
      });
      TakeEveryStep(*table, n, g.data(), [&](int step, int array) {
        std::fill(to[step][array].begin(), to[step][array].end(), 99.0f);
        return InOut<float>(from[array].data(), to[step][array].data());
      });
      for (int step = 0; step < kStepCount; ++step) {
        for (int array = 0; array < 3; ++array) {
          SCOPED_TRACE(step * 10 + array);
          ExpectSameBits(to[step][array], in_place[step][array]);
          ExpectSameBits(from[array], kept[array]);
        }
      }
    }
  }
}

TEST_F(KernelTest, VectorisedSumsHaveTheBitsOfThePlainOnes) {
  SCOPED_TRACE(Seed());
  for (int repeat = 0; repeat < 50; ++repeat) {
    const int n = Count();
    const auto x = Values(n);
    const auto start = Values(n);
    auto scaled = start, summed = start;
    ScalePlain(n, 0.3f, x.data(), scaled.data());
    AccumulatePlain(n, 0.3f, x.data(), summed.data());
    const NormResult norm = CheckAndNormPlain(n, x.data());
    for (const auto& [name, table] : Tables()) {
      SCOPED_TRACE(name);
      auto y = start;
      table->scale(n, 0.3f, x.data(), y.data());
      ExpectSameBits(y, scaled);
      y = start;
      table->accumulate(n, 0.3f, x.data(), y.data());
      ExpectSameBits(y, summed);
      const NormResult got = table->check_and_norm(n, x.data());
      EXPECT_EQ(got.finite, norm.finite);
      EXPECT_EQ(got.sum_of_squares, norm.sum_of_squares);
      EXPECT_EQ(table->all_finite(n, x.data()), AllFinitePlain(n, x.data()));
    }
  }
}

TEST_F(KernelTest, F32StaysNearTheSameRuleInF64) {
  SCOPED_TRACE(Seed());
  const AdaptiveConstants<float> c = {0.1f, 0.9f, 0.1f, 0.99f, 0.01f, 1e-3f};
  const AdaptiveConstants<double> d = {0.1, 0.9, 0.1, 0.99, 0.01, 1e-3};
  std::normal_distribution<float> normal;
  const int n = 64;
  std::vector<float> theta(n, 1.0f), m(n, 0.0f), v(n, 1e-6f);
  std::vector<double> theta64(n, 1.0), m64(n, 0.0), v64(n, 1e-6);
  for (int step = 0; step < 5; ++step) {
    std::vector<float> g(n);
    for (float& value : g) value = normal(random_);
    const std::vector<double> g64(g.begin(), g.end());
    FedAdamStep(n, c, g.data(), theta.data(), m.data(), v.data());
    FedAdamStepPlain(n, d, g64.data(), theta64.data(), m64.data(), v64.data());
    for (int i = 0; i < n; ++i) {
      EXPECT_NEAR(theta[i], theta64[i], 1e-5 * (1 + std::abs(theta64[i])));
    }
  }
}

TEST_F(KernelTest, DelayedNesterovWithABufferOfOneIsNesterov) {
  SCOPED_TRACE(Seed());
  const DelayedConstants<float> c = {0.7f, 0.9f, 1.0f, 0.0f, 0.9f};
  for (const auto& [name, table] : Tables()) {
    SCOPED_TRACE(name);
    const int n = 100;
    auto theta = Values(n), expected = theta;
    std::vector<float> m(n, -0.0f), sum(n, -0.0f), expected_m(n, -0.0f);
    for (int step = 0; step < 4; ++step) {
      const auto g = Values(n);
      table->delayed_nesterov(n, c, true, g.data(), theta.data(), m.data(),
                              sum.data());
      table->nesterov(n, 0.7f, 0.9f, g.data(), expected.data(),
                      expected_m.data());
      ExpectSameBits(theta, expected);
      ExpectSameBits(m, expected_m);
    }
  }
}

TEST_F(KernelTest, OneBadValueAnywhereIsFound) {
  SCOPED_TRACE(Seed());
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::signaling_NaN(),
                       std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()};
  for (const auto& [name, table] : Tables()) {
    for (int n = 1; n < 80; ++n) {
      std::vector<float> x(n, std::numeric_limits<float>::max());
      EXPECT_TRUE(table->check_and_norm(n, x.data()).finite);
      x[random_() % n] = bad[random_() % 4];
      EXPECT_FALSE(table->check_and_norm(n, x.data()).finite)
          << name << " n " << n;
    }
  }
}

TEST(KernelChoiceTest, TheBetterTableIsTaken) {
  EXPECT_EQ(&BestLoops(), HasAvx512() ? &Avx512Loops() : &Avx2Loops());
}

}  // namespace
}  // namespace atl::kernels
