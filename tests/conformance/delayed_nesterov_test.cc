// Delayed Nesterov against a second implementation of arXiv 2401.09135,
// algorithm 3, line by line and in double. Its gradients are those of an async
// run: islands of different speeds, each from the version that it started from.
//
//   receive g_t;  D = D + g_t
//   if (t + 1) mod N == 0:  m = beta m + D / N
//                           theta -= eps ((1 - c N + c) beta m + g_t / N); D =
//                           0
//   else:                   theta -= eps (c beta m + g_t / N)

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/core/outer_optimizer/outer_optimizer.h"

namespace atl::server {
namespace {

constexpr int kElements = 517;

class Ours {
 public:
  explicit Ours(const v1::OuterSpec& spec, std::vector<float> theta)
      : optimizer_(*MakeOuterOptimizer(spec)), theta_(std::move(theta)) {
    for (int i = 0; i < optimizer_->state_count(); ++i) {
      state_[i].assign(kElements, optimizer_->initial_state(i));
    }
  }
  void Step(const std::vector<float>& g) {
    OuterTile tile;
    tile.count = kElements;
    tile.version = version_++;
    tile.gradient = g.data();
    tile.theta = theta_.data();
    for (int i = 0; i < 2; ++i) tile.state[i] = state_[i].data();
    optimizer_->Step(tile);
  }
  const std::vector<float>& theta() const { return theta_; }

 private:
  std::unique_ptr<OuterOptimizer> optimizer_;
  int64_t version_ = 0;
  std::vector<float> theta_;
  std::vector<float> state_[2];
};

struct Paper {
  double n, c, beta, eps;
  int64_t t = 0;
  std::vector<double> theta, m, d;

  void Receive(const std::vector<float>& g) {
    for (size_t i = 0; i < theta.size(); ++i) {
      d[i] += g[i];
      if (std::fmod(t + 1, n) == 0) {
        m[i] = beta * m[i] + d[i] / n;
        theta[i] -= eps * ((1 - c * n + c) * beta * m[i] + g[i] / n);
        d[i] = 0;
      } else {
        theta[i] -= eps * (c * beta * m[i] + g[i] / n);
      }
    }
    ++t;
  }
};

class DelayedNesterovTest : public testing::Test {
 protected:
  DelayedNesterovTest() : seed_(std::random_device()()), random_(seed_) {
    RecordProperty("seed", std::to_string(seed_));
  }
  std::vector<float> Normal(float scale) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> x(kElements);
    for (float& value : x) value = normal(random_);
    return x;
  }
  v1::OuterSpec Spec(int n, double c) {
    v1::OuterSpec spec;
    spec.set_optimizer(v1::OUTER_OPTIMIZER_KIND_DELAYED_NESTEROV);
    spec.set_learning_rate(0.7);
    spec.set_momentum(0.9);
    spec.set_buffer_count(n);
    spec.set_momentum_share(c);
    return spec;
  }

  const uint64_t seed_;
  std::mt19937_64 random_;
};

TEST_F(DelayedNesterovTest, IsThePapersAlgorithm3) {
  for (const int n : {1, 2, 3, 4, 16}) {
    for (const double c : {0.0, 0.5 / n, 1.0 / n}) {
      SCOPED_TRACE("N " + std::to_string(n) + ", c " + std::to_string(c) +
                   ", seed " + std::to_string(seed_));
      const std::vector<float> theta = Normal(1);
      Ours ours(Spec(n, c), theta);
      Paper paper{static_cast<double>(n), c, 0.9, 0.7, 0,
                  {theta.begin(), theta.end()},
                  std::vector<double>(kElements),
                  std::vector<double>(kElements)};
      for (int t = 0; t < 40; ++t) {
        const std::vector<float> g = Normal(0.1f);
        ours.Step(g);
        paper.Receive(g);
        for (int i = 0; i < kElements; ++i) {
          ASSERT_NEAR(ours.theta()[i], paper.theta[i],
                      1e-5 * (1 + std::abs(paper.theta[i])))
              << "step " << t << " element " << i;
        }
      }
    }
  }
}

// With N = 1, (1 - cN + c) = 1 for every c, and it is Nesterov.
TEST_F(DelayedNesterovTest, OverOneContributionIsNesterov) {
  const std::vector<float> theta = Normal(1);
  v1::OuterSpec nesterov = Spec(0, 0);
  nesterov.set_optimizer(v1::OUTER_OPTIMIZER_KIND_NESTEROV);
  Ours delayed(Spec(1, 0), theta);
  Ours plain(nesterov, theta);
  for (int t = 0; t < 30; ++t) {
    const std::vector<float> g = Normal(0.1f);
    delayed.Step(g);
    plain.Step(g);
    for (int i = 0; i < kElements; ++i) {
      ASSERT_NEAR(delayed.theta()[i], plain.theta()[i],
                  1e-5 * (1 + std::abs(plain.theta()[i])))
          << "seed " << seed_;
    }
  }
}

// An async run on a quadratic: island k pushes half the way from its anchor to
// the minimum, plus noise, every `periods[k]` ticks.
double Distance(const v1::OuterSpec& spec, std::vector<int> periods,
                uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Ours server(spec, std::vector<float>(kElements, 1.0f));  // Minimum: 0.
  std::vector<std::vector<float>> anchors(periods.size(), server.theta());
  double tail = 0;
  int tail_count = 0;
  constexpr int kTicks = 400;
  for (int tick = 1; tick <= kTicks; ++tick) {
    for (size_t k = 0; k < periods.size(); ++k) {
      if (tick % periods[k] != 0) continue;
      std::vector<float> g(kElements);
      for (int i = 0; i < kElements; ++i) {
        g[i] = 0.3f * anchors[k][i] + 0.02f * normal(random);
      }
      server.Step(g);
      anchors[k] = server.theta();
    }
    if (tick < kTicks / 2) continue;
    ++tail_count;
    for (const float x : server.theta()) tail += double{x} * x / kElements;
  }
  return tail / tail_count;
}

// The paper's claim (section 5.1): plain Nesterov adds the momentum once per
// contribution, and diverges where Delayed Nesterov is stable.
TEST_F(DelayedNesterovTest, HoldsWhereNaiveAsyncNesterovDoesNot) {
  v1::OuterSpec naive = Spec(0, 0);
  naive.set_optimizer(v1::OUTER_OPTIMIZER_KIND_NESTEROV);
  const std::vector<int> periods = {4, 4, 4, 4};
  const double delayed = Distance(Spec(4, 0), periods, seed_);
  const double plain = Distance(naive, periods, seed_);
  std::printf("seed %llu: delayed %g, naive %g\n",
              static_cast<unsigned long long>(seed_), delayed, plain);
  EXPECT_LT(delayed, 0.02);
  EXPECT_FALSE(plain < 10 * delayed);
}

}  // namespace
}  // namespace atl::server
