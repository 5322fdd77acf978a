#include "base/layout/held_layout.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

constexpr int64_t kBlock = 4096;

class HeldLayoutTest : public testing::Test {
 protected:
  HeldLayoutTest() {
    v1::Layout layout;
    layout.set_fragment_count(2);
    // Tensor 1, in fragment 1, lies between tensors of fragment 0.
    for (const int64_t size : {2 * kBlock + 100, kBlock, 3 * kBlock, 7l}) {
      v1::TensorSpec* tensor = layout.add_tensors();
      tensor->set_name("t" + std::to_string(layout.tensors_size()));
      tensor->add_shape(size);
      tensor->set_dtype(v1::DATA_TYPE_F32);
      tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
      tensor->set_fragment(size == kBlock ? 1 : 0);
      tensor->mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
    }
    auto made = RunLayout::Create(layout);
    EXPECT_TRUE(made.ok()) << made.status();
    layout_ = std::make_unique<RunLayout>(*std::move(made));
    for (const TensorPlace& tensor : layout_->tensors()) {
      for (int64_t at = 0; at < tensor.element_count; at += kBlock) {
        const int64_t begin = tensor.model_offset + at;
        blocks_.push_back(
            {begin,
             begin + std::min(kBlock, tensor.element_count - at)});
      }
    }
  }

  const uint64_t seed_ = std::random_device()();
  testing::ScopedTrace trace_{__FILE__, __LINE__,
                              "seed " + std::to_string(seed_)};
  std::mt19937_64 random_{seed_};
  std::unique_ptr<RunLayout> layout_;
  std::vector<IndexRange> blocks_;  // In the model order.
};

TEST_F(HeldLayoutTest, AllOfALayoutIsInItsOwnOrders) {
  const HeldLayout held(*layout_);
  EXPECT_TRUE(held.is_all());
  EXPECT_EQ(held.element_count(), layout_->element_count());
  for (int32_t f = 0; f < 2; ++f) {
    EXPECT_EQ(held.fragment_element_count(f),
              layout_->fragment_element_count(f));
    ASSERT_EQ(held.fragment_blocks(f).size(), 1);
    EXPECT_EQ(held.fragment_blocks(f)[0],
              (IndexRange{0, layout_->fragment_block_count(f)}));
    for (const HeldPiece& piece : held.pieces(f)) {
      const TensorPlace& tensor = layout_->tensors()[piece.tensor];
      EXPECT_EQ(piece.tensor_offset, 0);
      EXPECT_EQ(piece.held_offset, tensor.model_offset);
      EXPECT_EQ(piece.fragment_offset, tensor.fragment_offset);
      EXPECT_EQ(piece.element_count, tensor.element_count);
    }
  }
}

// Identifies every element of every process by its number in the model.
TEST_F(HeldLayoutTest, PartsHoldEachElementOnceInBothOrders) {
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<std::vector<IndexRange>> parts(3);
    for (const IndexRange block : blocks_) {
      parts[random_() % 3].push_back(block);
    }
    std::vector<int> seen(layout_->element_count());
    std::vector<int> blocks_seen(layout_->fragment_block_count(0));
    for (const std::vector<IndexRange>& spans : parts) {
      const auto held = HeldLayout::Create(*layout_, spans);
      ASSERT_TRUE(held.ok()) << held.status();
      std::vector<int64_t> order;  // The model order of what is held.
      for (const IndexRange span : held->spans()) {
        for (int64_t i = span.begin; i < span.end; ++i) order.push_back(i);
      }
      ASSERT_EQ(order.size(), held->element_count());
      for (int32_t f = 0; f < 2; ++f) {
        int64_t at = 0;  // In the fragment's held order.
        for (const HeldPiece& piece : held->pieces(f)) {
          const TensorPlace& tensor = layout_->tensors()[piece.tensor];
          ASSERT_EQ(tensor.fragment, f);
          ASSERT_EQ(piece.fragment_offset, at);
          at += piece.element_count;
          for (int64_t i = 0; i < piece.element_count; ++i) {
            const int64_t element =
                tensor.model_offset + piece.tensor_offset + i;
            ASSERT_EQ(order[piece.held_offset + i], element);
            ++seen[element];
          }
        }
        ASSERT_EQ(at, held->fragment_element_count(f));
        int64_t covered = 0;
        for (const IndexRange blocks : held->fragment_blocks(f)) {
          covered += layout_->BlockElements(f, blocks).size();
          for (int64_t b = blocks.begin; f == 0 && b < blocks.end; ++b) {
            ++blocks_seen[b];
          }
        }
        ASSERT_EQ(covered, at);
      }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), seen.size());
    EXPECT_EQ(std::count(blocks_seen.begin(), blocks_seen.end(), 1),
              blocks_seen.size());
  }
}

TEST_F(HeldLayoutTest, RefusesWhatIsNoWholeBlocksInOrder) {
  const int64_t all = layout_->element_count();
  const std::vector<IndexRange> wrong[] = {
      {{0, 100}},  // Ends inside a block.
      {{1, all}},
      {{0, all + 1}},
      {{0, kBlock}, {0, kBlock}},
  };
  for (const auto& spans : wrong) {
    EXPECT_EQ(HeldLayout::Create(*layout_, spans).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(HeldLayout::Create(*layout_, {}).ok());
}

}  // namespace
}  // namespace atl
