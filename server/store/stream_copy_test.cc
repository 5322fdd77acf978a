#include "server/store/stream_copy.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace atl::server {
namespace {

TEST(StreamCopyTest, CopiesJustWhatItShouldFromAnyPlaceToAnyPlace) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int repeat = 0; repeat < 300; ++repeat) {
    const int64_t n = random() % 200;
    const int64_t from = random() % 20;
    const int64_t to = random() % 20;
    std::vector<float> x(240), y(240, -1.0f);
    for (float& value : x) value = static_cast<float>(random() % 1000);
    StreamCopy(n, x.data() + from, y.data() + to);
    for (int64_t i = 0; i < 240; ++i) {
      const bool inside = i >= to && i < to + n;
      ASSERT_EQ(y[i], inside ? x[from + i - to] : -1.0f)
          << i << " of " << n << " from " << from << " to " << to;
    }
  }
}

}  // namespace
}  // namespace atl::server
