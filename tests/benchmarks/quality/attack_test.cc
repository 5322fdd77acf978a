#include "tests/benchmarks/quality/attack.h"

#include <cmath>
#include <cstdint>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace atl::benchmarks {
namespace {

std::vector<float> After(const std::string& text, std::vector<float> g) {
  const absl::StatusOr<Attack> attack = ParseAttack(text);
  EXPECT_TRUE(attack.ok()) << attack.status();
  if (attack.ok()) Apply(*attack, absl::MakeSpan(g));
  return g;
}

TEST(AttackTest, FlipsScalesAndDriftsTheSameWay) {
  EXPECT_EQ(After("sign_flip", {1, -2, 0.5f}),
            (std::vector<float>{-1, 2, -0.5f}));
  EXPECT_EQ(After("sign_flip:3", {1, -2}), (std::vector<float>{-3, 6}));
  EXPECT_EQ(After("scale:100", {1, -2}), (std::vector<float>{100, -200}));
  // rms(3, -4, 0, 0) = 2.5.
  EXPECT_EQ(After("drift:2", {3, -4, 0, 0}), (std::vector<float>{8, 1, 5, 5}));
  EXPECT_EQ(After("drift", {}), std::vector<float>());
  EXPECT_EQ(After("spike:1e30", {1, 2}), (std::vector<float>{1e30f, 1e30f}));
  EXPECT_TRUE(std::isnan(After("nan", {1, 2})[0]));
  EXPECT_EQ(After("nan", {1, 2})[1], 2);
}

TEST(AttackTest, NoiseHasTheNormOfTheGradient) {
  const std::vector<float> g = {3, -4, 0, 12};
  const std::vector<float> noise = After("noise:2", g);
  double sum = 0;
  for (const float v : noise) sum += static_cast<double>(v) * v;
  EXPECT_NEAR(std::sqrt(sum), 26, 1e-4);
  EXPECT_NE(noise, After("noise:2", {4, -3, 0, 12}));
}

TEST(AttackTest, TheSameGradientGivesTheSameBytes) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> g(10000);
  for (float& v : g) v = normal(random);
  for (const char* attack : {"sign_flip", "scale:100", "drift:1", "noise"}) {
    EXPECT_EQ(After(attack, g), After(attack, g)) << attack;
    EXPECT_NE(After(attack, g), g) << attack;
  }
}

TEST(AttackTest, RefusesWhatIsNoAttack) {
  for (const char* text :
       {"", "flip", "scale:", "scale:x", "scale:-1", "scale:0", "drift:inf"}) {
    EXPECT_EQ(ParseAttack(text).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

}  // namespace
}  // namespace atl::benchmarks
