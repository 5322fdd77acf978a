#include "worker/core/planner/codec_size.h"

#include <cstdint>
#include <random>

#include "gtest/gtest.h"

namespace atl::worker::planner {
namespace {

TEST(CodecSizeTest, EveryCodecHasANameThatFindsIt) {
  for (const WireCodec codec : AllWireCodecs()) {
    EXPECT_EQ(FindWireCodec(WireCodecName(codec)), codec);
  }
  EXPECT_FALSE(FindWireCodec("f16").has_value());
  EXPECT_FALSE(FindWireCodec("").has_value());
}

TEST(CodecSizeTest, AFullBlockTakesWhatItsFormatSays) {
  EXPECT_EQ(EncodedBytes(WireCodec::kF32, 4096), 16384);
  EXPECT_EQ(EncodedBytes(WireCodec::kBf16, 4096), 8192);
  EXPECT_EQ(EncodedBytes(WireCodec::kF32, 1), 4);
  EXPECT_EQ(EncodedBytes(WireCodec::kBf16, 3), 6);
  EXPECT_EQ(EncodedBytes(WireCodec::kTopK, 0), 0);
}

TEST(CodecSizeTest, TopKIsAtLeast205TimesSmallerThanF32) {
  const int64_t elements = int64_t{4096} * 1000000;
  EXPECT_GE(EncodedBytes(WireCodec::kF32, elements),
            205 * EncodedBytes(WireCodec::kTopK, elements));
}

TEST(CodecSizeTest, MoreElementsTakeMoreBytesAndLaterCodecsFewer) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1000; ++i) {
    const int64_t n = static_cast<int64_t>(random() % 2000000000) + 1;
    int64_t before = EncodedBytes(WireCodec::kF32, n) + 1;
    for (const WireCodec codec : AllWireCodecs()) {
      const int64_t bytes = EncodedBytes(codec, n);
      EXPECT_LE(bytes, before) << n;
      EXPECT_LE(EncodedBytes(codec, n - 1), bytes) << n;
      EXPECT_GT(bytes, 0);
      before = bytes;
    }
  }
}

}  // namespace
}  // namespace atl::worker::planner
