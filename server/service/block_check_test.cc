#include "server/service/block_check.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/codec/block_grid.h"
#include "base/codec/codec.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

class BlockCheckTest : public ::testing::Test {
 protected:
  const uint64_t seed_ = std::random_device()();
  ::testing::ScopedTrace trace_{__FILE__, __LINE__,
                                "seed " + std::to_string(seed_)};
  std::mt19937_64 random_{seed_};
};

TEST_F(BlockCheckTest, TakesWhatAnEncoderWritesAndAddsItsSquares) {
  for (const codec::CodecId id : codec::AllCodecs()) {
    const codec::Codec& codec = codec::GetCodec(id);
    for (int repetition = 0; repetition < 10; ++repetition) {
      const size_t count = 1 + random_() % codec::kBlockElements;
      std::normal_distribution<float> normal(0, 0.01f);
      std::vector<float> values(count);
      for (float& value : values) value = normal(random_);
      std::vector<float> aligned((codec.EncodedBytes(count) + 3) / 4);
      const absl::Span<char> bytes(reinterpret_cast<char*>(aligned.data()),
                                   codec.EncodedBytes(count));
      ASSERT_EQ(codec.Encode({}, values, bytes), codec::BlockFault::kNone);
      const absl::string_view encoded(bytes.data(), bytes.size());
      std::vector<float> decoded(count);
      ASSERT_EQ(codec.Decode(encoded, absl::MakeSpan(decoded)),
                codec::BlockFault::kNone);
      double sum = 0;
      for (const float d : decoded) sum += static_cast<double>(d) * d;
      const CheckedBlock checked =
          CheckBlock(codec, encoded, static_cast<int64_t>(count));
      EXPECT_EQ(checked.fault, codec::BlockFault::kNone);
      EXPECT_NEAR(checked.sum_of_squares, sum, 1e-9 * sum);
      EXPECT_EQ(
          CheckBlock(codec, encoded.substr(1), static_cast<int64_t>(count))
              .fault,
          codec::BlockFault::kWrongSize);
    }
  }
}

TEST_F(BlockCheckTest, AnyBytesAreFaultyOrFinite) {
  for (const codec::CodecId id : codec::AllCodecs()) {
    const codec::Codec& codec = codec::GetCodec(id);
    int taken = 0;
    for (int repetition = 0; repetition < 300; ++repetition) {
      const size_t count = 1 + random_() % codec::kBlockElements;
      std::vector<uint32_t> aligned((codec.EncodedBytes(count) + 3) / 4);
      for (uint32_t& word : aligned) {
        word = static_cast<uint32_t>(random_());
        // All-ones exponents would be too rare otherwise.
        if (random_() % 64 == 0) word |= 0x7f800000u;
      }
      const CheckedBlock checked =
          CheckBlock(codec,
                     {reinterpret_cast<const char*>(aligned.data()),
                      codec.EncodedBytes(count)},
                     static_cast<int64_t>(count));
      if (checked.fault != codec::BlockFault::kNone) continue;
      ++taken;
      EXPECT_TRUE(std::isfinite(checked.sum_of_squares));
    }
    EXPECT_LT(taken, 300) << codec::CodecName(id);
  }
}

}  // namespace
}  // namespace atl::server
