// Which deltas the ring holds, after restarts and damage too.

#include "server/store/delta_ring.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "base/codec/codec.h"
#include "base/io/testing/fake_file_system.h"
#include "base/layout/layout.h"
#include "base/status/check.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

constexpr char kDirectory[] = "deltas";
constexpr int64_t kBlocks = 3;

RunLayout MakeLayout() {
  v1::Layout layout;
  layout.set_fragment_count(1);
  v1::TensorSpec* tensor = layout.add_tensors();
  tensor->set_name("w");
  tensor->add_shape(10000);
  tensor->set_dtype(v1::DATA_TYPE_F32);
  tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
  tensor->mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  return *RunLayout::Create(layout);
}

class DeltaRingTest : public testing::Test {
 protected:
  DeltaRingTest() {
    CHECK(fs_.CreateDirectories(kDirectory).ok());
    Open(0);
  }

  void Open(int64_t version) {
    ring_.reset();
    auto opened = DeltaRing::Open(fs_, kDirectory, {"run", 0},
                                  codec::GetCodec(codec::CodecId::kInt8),
                                  ranges_, {version}, pool_);
    CHECK(opened.ok()) << opened.status();
    ring_ = *std::move(opened);
  }

  int64_t Bytes(IndexRange blocks) const {
    return ring_->layout(0).ByteCount(blocks);
  }
  std::string Content(int64_t version) const {
    return std::string(Bytes({0, kBlocks}),
                       static_cast<char>('a' + version % 26));
  }

  void Make(int64_t version) {
    auto file = ring_->New(0, version);
    ASSERT_TRUE(file.ok()) << file.status();
    const std::string content = Content(version);
    for (int64_t b = 0; b < kBlocks; ++b) {
      ASSERT_TRUE(
          (*file)
              ->Write({b, b + 1}, content.data() + Bytes({0, b}))
              .ok());
    }
    ring_->Publish(0, version, *file);
  }
  void MakeAndPersist(int64_t version) {
    Make(version);
    ring_->Commit(0, version);
    ring_->Persist(0, version);
  }

  std::string Read(const DeltaFile& file) const {
    std::string bytes(Bytes({0, kBlocks}), '\0');
    const absl::Status read = file.Read({0, kBlocks}, bytes.data());
    return read.ok() ? bytes : std::string(read.message());
  }

  const RunLayout layout_ = MakeLayout();
  const std::vector<ShardRange> ranges_ = {ShardRange(layout_, 0, 0, 1)};
  FakeFileSystem fs_;
  std::shared_ptr<ImagePool> pool_ = ImagePool::Create(16 << 20);
  std::unique_ptr<DeltaRing> ring_;
};

TEST_F(DeltaRingTest, HoldsAsManyAsTakeNoMoreThanTheReplicaInFull) {
  EXPECT_EQ(ring_->kept_count(0), 3);
  for (int64_t v = 1; v <= 5; ++v) MakeAndPersist(v);
  EXPECT_EQ(ring_->Chain(0, 2, 5).size(), 3u);
  EXPECT_EQ(ring_->Chain(0, 4, 5).size(), 1u);
  EXPECT_TRUE(ring_->Chain(0, 1, 5).empty());   // Too long.
  EXPECT_TRUE(ring_->Chain(0, 1, 3).empty());   // 2 is gone.
  EXPECT_TRUE(ring_->Chain(0, 4, 6).empty());   // 6 is not made.
  EXPECT_TRUE(ring_->Chain(0, 5, 5).empty());
  EXPECT_TRUE(ring_->Chain(0, -1, 1).empty());
  // Three deltas and a spare.
  EXPECT_EQ(fs_.List(kDirectory)->size(), 4u);
}

TEST_F(DeltaRingTest, ARunThatHasEndedLeavesNoSpareFile) {
  for (int64_t v = 1; v <= 5; ++v) MakeAndPersist(v);
  ASSERT_EQ(fs_.List(kDirectory)->size(), 4u);
  ring_->DropSpares();
  EXPECT_EQ(fs_.List(kDirectory)->size(), 3u);
  ring_->DropSpares();
  const auto chain = ring_->Chain(0, 2, 5);
  ASSERT_EQ(chain.size(), 3u);
  EXPECT_EQ(Read(*chain[0]), Content(3));
  // The run can continue.
  MakeAndPersist(6);
  EXPECT_EQ(ring_->Chain(0, 3, 6).size(), 3u);
}

TEST_F(DeltaRingTest, KeepsItsBytesWithAndWithoutMemory) {
  for (const bool with_memory : {true, false}) {
    if (!with_memory) pool_ = nullptr;
    Open(0);
    for (int64_t v = 1; v <= 4; ++v) {
      MakeAndPersist(v);
      for (int64_t w = std::max<int64_t>(1, v - 2); w <= v; ++w) {
        const auto chain = ring_->Chain(0, w - 1, w);
        ASSERT_EQ(chain.size(), 1u);
        EXPECT_EQ(Read(*chain[0]), Content(w));
        // Only the newest delta is in memory.
        VersionImage keep;
        EXPECT_EQ(chain[0]->Map({0, 1}, &keep) != nullptr,
                  with_memory && w == v);
      }
    }
  }
}

TEST_F(DeltaRingTest, AReaderKeepsWhatFallsOut) {
  MakeAndPersist(1);
  const auto held = ring_->Chain(0, 0, 1);
  for (int64_t v = 2; v <= 9; ++v) MakeAndPersist(v);
  EXPECT_EQ(Read(*held[0]), Content(1));
}

TEST_F(DeltaRingTest, AStartFindsWhatWasPersistedAndNoMore) {
  for (int64_t v = 1; v <= 4; ++v) MakeAndPersist(v);
  Make(5);  // Prepared.
  const std::string mine = std::string(kDirectory) + "/notes.tmp";
  ASSERT_TRUE(fs_.OpenForWrite(mine).ok());
  Open(4);
  EXPECT_TRUE(fs_.Exists(mine));
  ASSERT_TRUE(fs_.Remove(mine).ok());
  const auto chain = ring_->Chain(0, 1, 4);
  ASSERT_EQ(chain.size(), 3u);
  for (int64_t v = 2; v <= 4; ++v) EXPECT_EQ(Read(*chain[v - 2]), Content(v));
  EXPECT_TRUE(ring_->Chain(0, 4, 5).empty());
  EXPECT_EQ(fs_.List(kDirectory)->size(), 3u);
  // It was renamed, but STATE was not written: it is made again.
  Make(5);
  ring_->Persist(0, 5);
  Open(4);
  EXPECT_TRUE(ring_->Chain(0, 4, 5).empty());
  MakeAndPersist(5);
  EXPECT_EQ(Read(*ring_->Chain(0, 4, 5)[0]), Content(5));
}

TEST_F(DeltaRingTest, WhatAPowerCutLeavesIsNotHeld) {
  for (int64_t v = 1; v <= 3; ++v) MakeAndPersist(v);
  fs_.Crash();
  CHECK(fs_.CreateDirectories(kDirectory).ok());
  Open(3);
  EXPECT_TRUE(ring_->Chain(0, 2, 3).empty());
  MakeAndPersist(4);
  EXPECT_EQ(ring_->Chain(0, 3, 4).size(), 1u);
}

TEST_F(DeltaRingTest, ADamagedBlockIsFoundWhenItIsRead) {
  MakeAndPersist(1);
  MakeAndPersist(2);
  {
    auto file = *fs_.OpenForWrite(std::string(kDirectory) + "/f0-v1.dlt");
    ASSERT_TRUE(file->WriteAt(4096 + 5000, "!").ok());
  }
  const auto chain = ring_->Chain(0, 0, 2);
  ASSERT_EQ(chain.size(), 2u);
  EXPECT_NE(Read(*chain[0]).find("f0-v1.dlt"), std::string::npos);
  ring_->Remove(0, 1);
  EXPECT_TRUE(ring_->Chain(0, 0, 2).empty());
  EXPECT_EQ(ring_->Chain(0, 1, 2).size(), 1u);
}

TEST_F(DeltaRingTest, WhatCannotBeWrittenIsNotHeldAndNoError) {
  MakeAndPersist(1);
  Make(2);
  ring_->Commit(0, 2);
  fs_.AddFault({.call = FakeFileSystem::Fault::Call::kWrite,
                .path_part = "",
                .error_number = EIO});
  ring_->Persist(0, 2);
  EXPECT_TRUE(ring_->Chain(0, 1, 2).empty());
  EXPECT_EQ(ring_->Chain(0, 0, 1).size(), 1u);
}

TEST_F(DeltaRingTest, AnotherAttemptTakesItsPlace) {
  MakeAndPersist(1);
  Make(2);
  const auto first = ring_->Chain(0, 1, 2);
  ring_->Remove(0, 2);
  EXPECT_TRUE(ring_->Chain(0, 1, 2).empty());
  MakeAndPersist(2);
  EXPECT_EQ(Read(*ring_->Chain(0, 1, 2)[0]), Content(2));
  EXPECT_EQ(Read(*first[0]), Content(2));
}

}  // namespace
}  // namespace atl::server
