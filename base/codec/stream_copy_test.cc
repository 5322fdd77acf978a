#include "base/codec/stream_copy.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace atl::codec {
namespace {

TEST(StreamCopyTest, CopiesJustWhatItShouldFromAnyPlaceToAnyPlace) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int repeat = 0; repeat < 300; ++repeat) {
    const size_t n = random() % 500;
    const size_t from = random() % 80;
    const size_t to = random() % 80;
    std::vector<char> x(600), y(600, -1);
    for (char& value : x) value = static_cast<char>(random() % 100);
    StreamCopy(n, x.data() + from, y.data() + to);
    for (size_t i = 0; i < y.size(); ++i) {
      const bool inside = i >= to && i < to + n;
      ASSERT_EQ(y[i], inside ? x[from + i - to] : -1)
          << i << " of " << n << " from " << from << " to " << to;
    }
  }
}

}  // namespace
}  // namespace atl::codec
