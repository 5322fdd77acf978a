#include "base/codec/f32.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace atl::codec {
namespace {

TEST(F32Test, FindsEveryNanAndInfinityWhereverItStands) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const float bad[] = {std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(), std::nanf(""),
                       -std::nanf("7")};
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<float> x(1 + random() % 5000);
    for (float& v : x) v = static_cast<float>(random()) * 1e19f;
    EXPECT_TRUE(AllFinite(x));
    x[random() % x.size()] = bad[random() % 4];
    EXPECT_FALSE(AllFinite(x));
    EXPECT_FALSE(AllFinitePlain(x));
  }
}

TEST(F32Test, DecodesAnyBitsExactlyFromUnalignedBytes) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::vector<char> bytes(4 * 5001 + 1);
  for (char& c : bytes) c = static_cast<char>(random());
  std::vector<float> x(5001);
  const bool finite = DecodeF32(bytes.data() + 1, absl::MakeSpan(x));
  EXPECT_EQ(std::memcmp(x.data(), bytes.data() + 1, 4 * x.size()), 0);
  EXPECT_EQ(finite, AllFinitePlain(x));
}

}  // namespace
}  // namespace atl::codec
