#include "worker/planner/codec_size.h"

#include <cstdint>
#include <random>

#include "gtest/gtest.h"

namespace atl::worker::planner {
namespace {

using codec::CodecId;

TEST(CodecSizeTest, EveryCodecHasANameThatFindsIt) {
  for (const CodecId codec : codec::AllCodecs()) {
    EXPECT_EQ(FindCodecNamed(codec::CodecName(codec)), codec);
  }
  EXPECT_FALSE(FindCodecNamed("f16").has_value());
  EXPECT_FALSE(FindCodecNamed("").has_value());
}

TEST(CodecSizeTest, ABlockTakesWhatItsFormatSays) {
  EXPECT_EQ(EncodedBytes(CodecId::kF32, 3 * 4096), 3 * 16384);
  EXPECT_EQ(EncodedBytes(CodecId::kBf16, 4096), 8192);
  EXPECT_EQ(EncodedBytes(CodecId::kF32, 4097), 16384 + 4);
  EXPECT_EQ(EncodedBytes(CodecId::kBf16, 3), 6);
  EXPECT_EQ(EncodedBytes(CodecId::kTopK, 0), 0);
}

TEST(CodecSizeTest, TopKIsAtLeast205TimesSmallerThanF32) {
  const int64_t elements = int64_t{4096} * 1000000;
  EXPECT_GE(EncodedBytes(CodecId::kF32, elements),
            205 * EncodedBytes(CodecId::kTopK, elements));
}

TEST(CodecSizeTest, EveryElementIsInOneBlock) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1000; ++i) {
    const int64_t n = static_cast<int64_t>(random() % 2000000000) + 4096;
    for (const CodecId codec : codec::AllCodecs()) {
      const int64_t block =
          static_cast<int64_t>(codec::GetCodec(codec).EncodedBytes(4096));
      EXPECT_EQ(EncodedBytes(codec, n), EncodedBytes(codec, n - 4096) + block);
      EXPECT_LE(EncodedBytes(codec, n), (n + 4095) / 4096 * block) << n;
    }
  }
}

}  // namespace
}  // namespace atl::worker::planner
