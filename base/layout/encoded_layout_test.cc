#include "base/layout/encoded_layout.h"

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/codec/block_grid.h"
#include "base/codec/block_run.h"
#include "base/codec/codec.h"
#include "base/layout/layout.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

RunLayout RandomLayout(std::mt19937_64& random) {
  v1::Layout layout;
  const int fragments = 1 + random() % 3;
  layout.set_fragment_count(fragments);
  const int tensors = fragments + random() % 8;
  for (int i = 0; i < tensors; ++i) {
    v1::TensorSpec* tensor = layout.add_tensors();
    tensor->set_name("t" + std::to_string(i));
    // Sometimes a multiple of the block size.
    tensor->add_shape(random() % 4 == 0 ? codec::kBlockElements
                                        : 1 + random() % 9000);
    tensor->add_shape(1 + random() % 5);
    tensor->set_dtype(v1::DATA_TYPE_F32);
    tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
    tensor->set_fragment(
        i < fragments ? i : static_cast<int>(random() % fragments));
    tensor->mutable_init()->set_kind(v1::INIT_KIND_NORMAL);
  }
  auto made = RunLayout::Create(layout);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

class EncodedLayoutTest : public ::testing::Test {
 protected:
  const uint64_t seed_ = std::random_device()();
  ::testing::ScopedTrace trace_{__FILE__, __LINE__,
                                "seed " + std::to_string(seed_)};
  std::mt19937_64 random_{seed_};
};

TEST_F(EncodedLayoutTest, APlaceIsTheSumOfTheBlocksBeforeIt) {
  for (int repetition = 0; repetition < 20; ++repetition) {
    const RunLayout layout = RandomLayout(random_);
    for (const codec::CodecId id : codec::AllCodecs()) {
      const codec::Codec& codec = codec::GetCodec(id);
      for (int32_t f = 0; f < layout.fragment_count(); ++f) {
        const EncodedLayout encoded(layout, f, codec);
        int64_t sum = 0;
        for (int64_t b = 0; b < layout.fragment_block_count(f); ++b) {
          ASSERT_EQ(encoded.ByteOffset(b), sum) << codec::CodecName(id);
          sum +=
              static_cast<int64_t>(codec.EncodedBytes(encoded.ElementCount(b)));
        }
        EXPECT_EQ(encoded.byte_count(), sum);
        const IndexRange all = {0, layout.fragment_block_count(f)};
        codec::BlockRun run;
        const std::vector<int32_t> counts = encoded.ElementCounts(all);
        run.element_counts = counts;
        EXPECT_EQ(codec::EncodedRunBytes(codec, run), sum);
        EXPECT_EQ(encoded.ByteOffset(layout.fragment_block_count(f)), sum);
      }
    }
  }
}

TEST_F(EncodedLayoutTest, F32LiesAsTheElementsDo) {
  const RunLayout layout = RandomLayout(random_);
  const EncodedLayout encoded(layout, 0, codec::GetCodec(codec::CodecId::kF32));
  for (int64_t b = 0; b <= layout.fragment_block_count(0); ++b) {
    EXPECT_EQ(encoded.ByteOffset(b), 4 * layout.BlockOffset(0, b));
  }
}

TEST_F(EncodedLayoutTest, AChunkIsAsManyUnitsAsFit) {
  const RunLayout layout = RandomLayout(random_);
  for (const codec::CodecId id : codec::AllCodecs()) {
    const codec::Codec& codec = codec::GetCodec(id);
    const EncodedLayout encoded(layout, 0, codec);
    const int64_t count = encoded.chunk_blocks();
    const int64_t full = codec.EncodedBytes(codec::kBlockElements);
    EXPECT_GE(count, codec::kChunkBlocksUnit) << codec::CodecName(id);
    EXPECT_EQ(count % codec::kChunkBlocksUnit, 0);
    EXPECT_LE(count * full, codec::kChunkPayloadBytesMax);
    EXPECT_GT((count + codec::kChunkBlocksUnit) * full,
              codec::kChunkPayloadBytesMax);
    EXPECT_EQ(encoded.chunk_blocks(codec::kChunkPayloadBytesMax), count);
    EXPECT_EQ(encoded.chunk_blocks(0), 1);
    EXPECT_EQ(encoded.chunk_blocks(2 * full - 1), 1);
    EXPECT_EQ(encoded.chunk_blocks(63 * full), 63);
    EXPECT_EQ(encoded.chunk_blocks(64 * full), 64);
  }
}

}  // namespace
}  // namespace atl
