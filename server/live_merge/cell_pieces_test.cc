#include "server/live_merge/cell_pieces.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/live_merge/receive_budget.h"

namespace atl::server {
namespace {

// Blocks of 4096 elements; the last block of each tensor is short.
constexpr int64_t kTensors[] = {4096 * 2100 + 77, 4096 * 9 + 1};

class CellPiecesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::cout << "seed " << seed_ << "\n";
    v1::Layout layout;
    layout.set_fragment_count(1);
    for (const int64_t size : kTensors) {
      v1::TensorSpec* tensor = layout.add_tensors();
      tensor->set_name("t" + std::to_string(size));
      tensor->add_shape(size);
      tensor->set_dtype(v1::DATA_TYPE_F32);
      tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
      tensor->mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
    }
    layout_ = std::make_unique<RunLayout>(*RunLayout::Create(layout));
    range_ = std::make_unique<ShardRange>(*layout_, 0, 0, 1);
    encoded_ = std::make_unique<EncodedRange>(
        *range_, codec::GetCodec(codec::CodecId::kInt8));
    bytes_.resize(encoded_->byte_count());
    for (char& byte : bytes_) byte = static_cast<char>(random_());
  }

  // `blocks` as a stream received them, in pieces of any size.
  std::unique_ptr<rpc::ReceivedChunk> Received(IndexRange blocks) {
    auto chunk = std::make_unique<rpc::ReceivedChunk>();
    absl::string_view left(bytes_.data() + encoded_->ByteOffset(blocks.begin),
                           encoded_->ByteCount(blocks));
    while (!left.empty()) {
      chunk->payload.push_back(left.substr(0, 1 + random_() % 3000));
      chunk->payload_bytes += chunk->payload.back().size();
      left.remove_prefix(chunk->payload.back().size());
    }
    return chunk;
  }

  static std::vector<BlockFact> MakeFacts(IndexRange blocks) {
    std::vector<BlockFact> facts;
    for (int64_t b = blocks.begin; b < blocks.end; ++b) {
      facts.push_back({static_cast<uint32_t>(b), 0.5 * b});
    }
    return facts;
  }

  void ExpectWhole(const CellPieces::Whole& whole, IndexRange cell) {
    EXPECT_EQ(whole.blocks, cell);
    std::string bytes(whole.chunk.payload_bytes, '\0');
    whole.chunk.CopyPayload(bytes.data());
    EXPECT_EQ(bytes,
              std::string(bytes_.data() + encoded_->ByteOffset(cell.begin),
                          encoded_->ByteCount(cell)));
    ASSERT_EQ(whole.facts.size(), static_cast<size_t>(cell.size()));
    for (int64_t b = cell.begin; b < cell.end; ++b) {
      EXPECT_EQ(whole.facts[b - cell.begin].crc32c, static_cast<uint32_t>(b));
      EXPECT_EQ(whole.facts[b - cell.begin].norm_squared, 0.5 * b);
    }
  }

  const unsigned seed_ = std::random_device()();
  std::mt19937 random_{seed_};
  std::unique_ptr<RunLayout> layout_;
  std::unique_ptr<ShardRange> range_;
  std::unique_ptr<EncodedRange> encoded_;
  std::vector<char> bytes_;
  const std::shared_ptr<ReceiveBudget> held_ =
      std::make_shared<ReceiveBudget>(1000, 0);
};

TEST_F(CellPiecesTest, PiecesInAnyOrderAndFromAnyThreadAreTheCell) {
  // The last cell is short and crosses the end of a tensor.
  const IndexRange cells[] = {{0, 64}, {2048, range_->blocks().end}};
  struct Piece {
    IndexRange cell, blocks;
    std::unique_ptr<rpc::ReceivedChunk> chunk;
  };
  std::vector<Piece> pieces;
  for (const IndexRange cell : cells) {
    for (int64_t begin = cell.begin; begin < cell.end;) {
      const int64_t end =
          std::min<int64_t>(cell.end, begin + 1 + random_() % 20);
      pieces.push_back({cell, {begin, end}, Received({begin, end})});
      begin = end;
    }
  }
  std::shuffle(pieces.begin(), pieces.end(), random_);
  CellPieces cell_pieces(*encoded_);
  std::vector<std::shared_ptr<CellPieces::Whole>> whole(pieces.size());
  std::vector<std::thread> threads;
  for (size_t first : {0, 1}) {
    threads.emplace_back([&, first] {
      for (size_t i = first; i < pieces.size(); i += 2) {
        whole[i] = cell_pieces
                       .Add(pieces[i].cell, pieces[i].blocks,
                            rpc::PayloadReader(*pieces[i].chunk),
                            MakeFacts(pieces[i].blocks), held_->Take(this, 1))
                       .value();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const IndexRange cell : cells) {
    int count = 0;
    for (const auto& one : whole) {
      if (one == nullptr || !(one->blocks == cell)) continue;
      ++count;
      ExpectWhole(*one, cell);
    }
    EXPECT_EQ(count, 1) << "of the cell from block " << cell.begin;
  }
}

TEST_F(CellPiecesTest, RoomIsKeptFromTheFirstPieceUntilTheCellIsLetGo) {
  const auto chunk = Received({0, 2});
  CellPieces pieces(*encoded_);
  EXPECT_FALSE(pieces.IsOpen(0));
  EXPECT_EQ(pieces
                .Add({0, 3}, {0, 1}, rpc::PayloadReader(*chunk),
                     MakeFacts({0, 1}), held_->Take(this, 30))
                .value(),
            nullptr);
  EXPECT_TRUE(pieces.IsOpen(0));
  EXPECT_EQ(pieces.open_count(), 1u);
  // Another stream brought a budget for the cell too.
  auto whole = pieces
                   .Add({0, 3}, {1, 3}, rpc::PayloadReader(*chunk),
                        MakeFacts({1, 3}), held_->Take(this, 30))
                   .value();
  ASSERT_NE(whole, nullptr);
  EXPECT_FALSE(pieces.IsOpen(0));
  EXPECT_EQ(pieces.open_count(), 0u);
  EXPECT_EQ(held_->bytes(), 30);
  whole.reset();
  EXPECT_EQ(held_->bytes(), 0);
}

TEST_F(CellPiecesTest, NoCellBeginsWithoutRoom) {
  const auto chunk = Received({0, 2});
  CellPieces pieces(*encoded_);
  const auto added = pieces.Add({0, 3}, {0, 1}, rpc::PayloadReader(*chunk),
                                MakeFacts({0, 1}), std::nullopt);
  EXPECT_TRUE(absl::IsResourceExhausted(added.status())) << added.status();
  EXPECT_FALSE(pieces.IsOpen(0));
}

TEST_F(CellPiecesTest, WhatIsBeyondTheBoundIsKnown) {
  const auto chunk = Received({0, 2});
  CellPieces pieces(*encoded_);
  EXPECT_FALSE(pieces.HoldsBeyond());
  ASSERT_TRUE(pieces
                  .Add({0, 3}, {0, 1}, rpc::PayloadReader(*chunk),
                       MakeFacts({0, 1}), held_->Take(this, 30))
                  .ok());
  EXPECT_FALSE(pieces.HoldsBeyond());
  ASSERT_TRUE(pieces
                  .Add({64, 128}, {64, 65}, rpc::PayloadReader(*chunk),
                       MakeFacts({64, 65}), held_->TakeOverBudget(this, 30))
                  .ok());
  EXPECT_TRUE(pieces.HoldsBeyond());
}

TEST_F(CellPiecesTest, WhatIsGivenUpCanComeAgain) {
  const auto chunk = Received({0, 64});
  CellPieces pieces(*encoded_);
  const auto add = [&](IndexRange piece) {
    const int64_t first = piece.begin / 64 * 64;
    return pieces
        .Add({first, first + 64}, piece, rpc::PayloadReader(*chunk),
             MakeFacts(piece), held_->Take(this, 30))
        .value();
  };
  for (const IndexRange piece : {IndexRange{5, 7}, {2, 3}, {64, 65}}) {
    EXPECT_EQ(add(piece), nullptr);
  }
  EXPECT_EQ(held_->bytes(), 60);
  EXPECT_TRUE(pieces.GiveUpAbandoned().empty()) << "it is gone on with";
  pieces.Abandon();
  EXPECT_EQ(add({66, 67}), nullptr);
  EXPECT_THAT(
      pieces.GiveUpAbandoned(),
      testing::UnorderedElementsAre(IndexRange{5, 7}, IndexRange{2, 3}));
  EXPECT_EQ(held_->bytes(), 30);
  const auto whole = add({0, 64});
  ASSERT_NE(whole, nullptr);
  ExpectWhole(*whole, {0, 64});
}

}  // namespace
}  // namespace atl::server
