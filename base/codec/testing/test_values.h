// Inputs that are hard for codecs, for tests and fuzzers.
//
// Deterministic for a seed.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/codec/bits.h"
#include "gtest/gtest.h"

namespace atl::codec {

// Fresh random inputs; prints the seed on failure.
class ValuesTest : public ::testing::Test {
 protected:
  ValuesTest() : seed_(std::random_device()()), random_(seed_) {
    RecordProperty("seed", std::to_string(seed_));
  }
  ~ValuesTest() override {
    if (HasFailure()) std::printf("seed: %u\n", seed_);
  }

  size_t Uniform(size_t low, size_t high) {
    return std::uniform_int_distribution<size_t>(low, high)(random_);
  }

  // A finite value of any magnitude.
  float AnyFinite() {
    for (;;) {
      const float value = FromBits(random_());
      if (std::isfinite(value)) return value;
    }
  }

  // An element count: often a whole block.
  size_t AnyCount() {
    static constexpr size_t kEdges[] = {1,   2,    63,   64,   65,   127, 128,
                                        255, 256,  257,  511,  512,  513, 767,
                                        768, 1024, 2047, 2049, 4095, 4096};
    switch (Uniform(0, 3)) {
      case 0:
        return Uniform(1, 4096);
      case 1:
        return kEdges[Uniform(0, std::size(kEdges) - 1)];
      default:
        return 4096;
    }
  }

  static constexpr int kKinds = 12;

  // `n` values of the given kind.
  std::vector<float> ValuesOfKind(int kind, size_t n) {
    std::normal_distribution<float> normal;
    std::vector<float> v(n);
    const float most = std::numeric_limits<float>::max();
    const float level = std::exp2(static_cast<float>(Uniform(0, 240)) - 120);
    for (size_t i = 0; i < n; ++i) {
      const float z = normal(random_);
      const float sign = random_() % 2 == 0 ? 1.0f : -1.0f;
      switch (kind) {
        case 0:  // Like outer gradients.
          v[i] = 1e-3f * z;
          break;
        case 1:  // Every magnitude.
          v[i] = AnyFinite();
          break;
        case 2:  // Zeros of both signs.
          v[i] = sign * 0.0f;
          break;
        case 3:  // Subnormals.
          v[i] = FromBits((random_() & 0x007fffff) | (random_() & 0x80000000));
          break;
        case 4:  // At the end of the range.
          v[i] = sign * (random_() % 4 == 0 ? most : most * 0.75f);
          break;
        case 5:  // One magnitude: ties.
          v[i] = sign * level;
          break;
        case 6:  // Two neighbours.
          v[i] =
              sign * (random_() % 2 == 0 ? level : std::nextafter(level, most));
          break;
        case 7:  // Halves of steps: ties of rounding.
          v[i] = level * (static_cast<float>(random_() % 509) - 254.0f) * 0.5f;
          break;
        case 8:  // Powers of two and midway.
          v[i] = sign * level *
                 std::exp2(static_cast<float>(Uniform(0, 11)) - 10.0f) *
                 (random_() % 2 == 0 ? 1.0f : 1.5f);
          break;
        case 9:  // Sparse.
          v[i] = random_() % 50 == 0 ? level * z : 0.0f;
          break;
        case 10:  // Heavy tails.
          v[i] = level * z / (0.01f + std::abs(normal(random_)));
          break;
        default:  // Near the least normal.
          v[i] = z * 3e-38f;
          break;
      }
    }
    for (float& value : v) {
      if (!std::isfinite(value)) value = most;
    }
    return v;
  }

  const unsigned seed_;
  std::mt19937 random_;
};

}  // namespace atl::codec
