// One island, H = 1, outer SGD with lr 1, inner SGD: pushing the outer gradient
// and stepping by it restores the exact bits of the inner step
// (worker/DESIGN.md, "Bits").
//
// Proof that fl(theta - fl(theta - s)) = s for s = fl(theta - u): let b = theta,
// a = -u, s = fl(b + a). If |b| >= |a|, s - b is exact (Dekker), so
// b + (s - b) = s. If |a| > |b| and s has the larger or the same ulp as
// t = fl(s - b): b + t differs from s by at most half an ulp of t, so it rounds
// to s; in a tie s is the even one, because s itself came from the same tie. If
// s has a smaller ulp than a, then |a + (error of s) - a| is at most a quarter
// of a's ulp, so t = a.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <random>

#include "gtest/gtest.h"

namespace atl::worker {
namespace {

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

uint32_t ToBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// theta - (theta - local), as an island and a server compute it.
float RoundTrip(float theta, float local) {
  const volatile float outer_gradient = theta - local;
  // The merge of one contribution with weight 1, added to zero.
  const volatile float merged = 0.0f + 1.0f * outer_gradient;
  const volatile float stepped = theta - 1.0f * merged;
  return stepped;
}

// Ignores signed zeros: x - (x - y) is +0 where y is -0.
bool Same(float a, float b) {
  return ToBits(a) == ToBits(b) || (a == 0 && b == 0);
}

TEST(RoundTripTest, GivesBackAnInnerSgdStepForRandomBitPatterns) {
  std::random_device device;
  const uint64_t seed = device();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  int64_t checked = 0;
  for (int64_t i = 0; i < 20'000'000; ++i) {
    const float theta = FromBits(static_cast<uint32_t>(random()));
    float update = FromBits(static_cast<uint32_t>(random()));
    if (i % 2 == 0 && std::isfinite(theta) && theta != 0) {
      // Exponents near each other, where rounding matters.
      const int shift = static_cast<int>(random() % 61) - 30;
      const float mantissa = FromBits(
          0x3f800000u | (static_cast<uint32_t>(random()) & 0x807fffffu));
      update = std::ldexp(mantissa, std::ilogb(theta) + shift);
    }
    const volatile float local = theta - update;
    if (!std::isfinite(theta) || !std::isfinite(update) ||
        !std::isfinite(local) || !std::isfinite(theta - local)) {
      continue;
    }
    ++checked;
    ASSERT_TRUE(Same(RoundTrip(theta, local), local))
        << std::hexfloat << "theta " << theta << " update " << update;
  }
  EXPECT_GT(checked, 10'000'000);
}

TEST(RoundTripTest, GivesBackStepsOnTies) {
  for (uint32_t exponent = 1; exponent < 254; ++exponent) {
    for (uint32_t low = 0; low < 64; ++low) {
      const float theta = FromBits((exponent << 23) | low);
      for (int shift = -26; shift <= 26; ++shift) {
        for (float odd : {1.0f, 1.5f, 3.0f, -1.0f, -1.5f, -3.0f}) {
          const float update = std::ldexp(odd * theta, shift);
          const volatile float local = theta - update;
          if (!std::isfinite(local) || !std::isfinite(theta - local)) continue;
          ASSERT_TRUE(Same(RoundTrip(theta, local), local))
              << std::hexfloat << theta << " " << update;
        }
      }
    }
  }
}

TEST(RoundTripTest, DoesNotGiveBackEveryValue) {
  // AdamW multiplies by the decay first, so a value need not be restored. Plain
  // training must take the same step to be equal.
  const float theta = FromBits(0x3f7fffff);
  const float local = FromBits(0x33000001);
  EXPECT_FALSE(Same(RoundTrip(theta, local), local));
}

}  // namespace
}  // namespace atl::worker
