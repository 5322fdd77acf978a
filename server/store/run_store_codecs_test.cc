// Encoded contributions in the log.

#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/codec/codec.h"
#include "base/codec/crc32c.h"
#include "base/io/testing/fake_file_system.h"
#include "base/status/check.h"
#include "gtest/gtest.h"
#include "server/store/run_store.h"
#include "server/store/testing/memory_record_store.h"
#include "server/store/records/run_records.h"

namespace atl::server {
namespace {

const std::string kLog = ShardNames("data", "run", "", 0).log();
constexpr int64_t kPageBytes = 4096;

class RunStoreCodecsTest : public testing::TestWithParam<codec::CodecId> {
 protected:
  RunStoreCodecsTest() : seed_(std::random_device{}()), random_(seed_) {
    std::cout << "seed " << seed_ << std::endl;
    v1::Run run;
    run.set_run_id("run");
    run.set_run_epoch(1);
    v1::Layout* layout = run.mutable_spec()->mutable_layout();
    layout->set_fragment_count(1);
    for (const int size : {10000, 100}) {  // Three blocks and one.
      v1::TensorSpec* tensor = layout->add_tensors();
      tensor->set_name("w" + std::to_string(size));
      tensor->add_shape(size);
      tensor->set_dtype(v1::DATA_TYPE_F32);
      tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
      tensor->mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
    }
    run.mutable_spec()->mutable_exchange()->set_up(
        static_cast<v1::Codec>(GetParam()));
    run.mutable_spec()->set_durability(v1::DURABILITY_MACHINE);
    CHECK(CreateRun(records_, run, 0, 1).ok());
    Reopen();
  }

  void Reopen() {
    store_.reset();
    auto run = ReadRun(records_);
    CHECK(run.ok()) << run.status();
    auto store = RunStore::Open(fs_, records_, "data", *run, 1);
    CHECK(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  void CutPowerAndReopen() {
    store_.reset();
    fs_.Crash();
    records_.CutPower();
    Reopen();
  }

  static v1::ContributionInfo Info(int32_t slot) {
    v1::ContributionInfo info;
    info.mutable_key()->set_run_epoch(1);
    info.mutable_key()->set_slot(slot);
    info.mutable_key()->set_seq(1);
    info.set_codec(static_cast<v1::Codec>(GetParam()));
    return info;
  }
  static v1::ContributionInfo ImportInfo() {
    v1::ContributionInfo info;
    *info.mutable_key() = ContributionKey::OfImport(0).ToProto();
    info.set_codec(v1::CODEC_F32);
    return info;
  }

  std::shared_ptr<Contribution> Bind(const v1::ContributionInfo& info) {
    auto bound = store_->contributions().Bind(info);
    CHECK(bound.ok()) << bound.status();
    return *bound;
  }

  // The encoding of random values.
  std::vector<char> Encoded(const EncodedRange& range) {
    std::vector<char> bytes;
    std::normal_distribution<float> normal;
    for (int64_t b = 0; b < range.range().block_count(); ++b) {
      std::vector<float> values(range.range().ElementCount({b, b + 1}));
      for (float& value : values) value = normal(random_);
      const size_t offset = bytes.size();
      bytes.resize(offset + range.ByteCount({b, b + 1}));
      CHECK(range.codec().Encode({}, values,
                                 absl::MakeSpan(bytes).subspan(offset)) ==
            codec::BlockFault::kNone);
    }
    return bytes;
  }

  // Writes `blocks` of `bytes`; true if the contribution is complete.
  bool Write(Contribution& contribution, const std::vector<char>& bytes,
             IndexRange blocks) {
    const EncodedRange& range = contribution.encoded();
    CHECK(contribution.Claim(blocks).size() == 1);
    std::vector<BlockFact> facts;
    for (int64_t b = blocks.begin; b < blocks.end; ++b) {
      facts.push_back(
          {codec::Crc32c(absl::string_view(bytes.data() + range.ByteOffset(b),
                                           range.ByteCount({b, b + 1}))),
           1.0});
    }
    const auto written = store_->contributions().WriteBlocks(
        contribution, blocks,
        {absl::string_view(bytes.data() + range.ByteOffset(blocks.begin),
                           range.ByteCount(blocks))},
        facts);
    CHECK(written.ok()) << written.status();
    return *written;
  }

  // Sizes of the segments without their header pages.
  std::vector<int64_t> SegmentSizes() {
    std::vector<int64_t> sizes;
    const auto names = fs_.List(kLog);
    CHECK(names.ok());
    for (const std::string& name : *names) {
      const auto file = fs_.OpenForRead(kLog + "/" + name);
      sizes.push_back(*(*file)->Size() - kPageBytes);
    }
    return sizes;
  }

  const unsigned seed_;
  std::mt19937 random_;
  FakeFileSystem fs_;
  MemoryRecordStore records_;
  std::unique_ptr<RunStore> store_;
};

TEST_P(RunStoreCodecsTest, WhatIsStoredOutlivesAPowerCutInItsOwnSize) {
  const EncodedRange range = store_->encoded(0);
  const std::vector<char> bytes = Encoded(range);
  ASSERT_EQ(bytes.size(), range.byte_count());
  {
    auto contribution = Bind(Info(2));
    ASSERT_TRUE(Write(*contribution, bytes, {0, 4}));
    ASSERT_TRUE(store_->contributions().Finish(*contribution).ok());
  }
  CutPowerAndReopen();
  EXPECT_EQ(SegmentSizes(), std::vector<int64_t>{range.byte_count()});
  const auto found =
      store_->contributions().Find(ContributionKey::FromProto(Info(2).key()));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->state(), Contribution::State::kStored);
  std::vector<char> read(found->encoded().ByteCount({1, 4}));
  ASSERT_TRUE(found->ReadEncoded({1, 4}, read.data()).ok());
  EXPECT_EQ(
      std::memcmp(read.data(), bytes.data() + range.ByteOffset(1), read.size()),
      0);
  const codec::Codec& codec = codec::GetCodec(GetParam());
  std::vector<float> elements(10100), expected(4096);
  ASSERT_TRUE(found->Read({0, 4}, elements.data()).ok());
  ASSERT_EQ(codec.Decode({bytes.data(), codec.EncodedBytes(4096)},
                         absl::MakeSpan(expected)),
            codec::BlockFault::kNone);
  EXPECT_EQ(std::memcmp(elements.data(), expected.data(), 4096 * 4), 0);
}

TEST_P(RunStoreCodecsTest, BlocksOfAPartOutliveTheProcess) {
  const std::vector<char> bytes = Encoded(store_->encoded(0));
  ASSERT_FALSE(Write(*Bind(Info(0)), bytes, {1, 3}));
  Reopen();
  auto contribution = Bind(Info(0));
  EXPECT_EQ(contribution->Missing(), (std::vector<IndexRange>{{0, 1}, {3, 4}}));
  ASSERT_FALSE(Write(*contribution, bytes, {0, 1}));
  ASSERT_TRUE(Write(*contribution, bytes, {3, 4}));
  EXPECT_EQ(*store_->contributions().Finish(*contribution), 4.0);
}

TEST_P(RunStoreCodecsTest, ADamagedBlockIsNamed) {
  const std::vector<char> bytes = Encoded(store_->encoded(0));
  auto contribution = Bind(Info(0));
  ASSERT_TRUE(Write(*contribution, bytes, {0, 4}));
  ASSERT_TRUE(store_->contributions().Finish(*contribution).ok());
  const auto names = fs_.List(kLog);
  auto file = fs_.OpenForWrite(std::string(kLog) + "/" + (*names)[0]);
  const int64_t at = kPageBytes + store_->encoded(0).ByteOffset(2);
  char byte;
  ASSERT_TRUE((*file)->ReadAt(at, absl::MakeSpan(&byte, 1)).ok());
  byte ^= 0x10;
  ASSERT_TRUE((*file)->WriteAt(at, absl::string_view(&byte, 1)).ok());
  std::vector<float> elements(10100);
  const absl::Status read = contribution->Read({0, 4}, elements.data());
  EXPECT_TRUE(absl::IsDataLoss(read)) << read;
  EXPECT_NE(read.message().find("block 2"), std::string::npos) << read;
}

// An import is f32 in every codec: contributions do not reuse its segment, nor
// find it after a crash.
TEST_P(RunStoreCodecsTest, AnImportHasASegmentOfItsOwnSize) {
  auto import = Bind(ImportInfo());
  EXPECT_TRUE(import->encoded().is_f32());
  const std::vector<char> bytes = Encoded(import->encoded());
  ASSERT_TRUE(Write(*import, bytes, {0, 4}));
  ASSERT_TRUE(store_->contributions().Finish(*import).ok());
  EXPECT_EQ(SegmentSizes(), std::vector<int64_t>{10100 * 4});
  Reopen();
  const ContributionKey key = ContributionKey::OfImport(0);
  import = store_->contributions().Find(key);
  std::vector<float> elements(10100);
  ASSERT_TRUE(import->Read({0, 4}, elements.data()).ok());
  EXPECT_EQ(std::memcmp(elements.data(), bytes.data(), bytes.size()), 0);
  import.reset();
  ASSERT_TRUE(store_->contributions().Drop({key}).ok());
  const int64_t own = store_->encoded(0).byte_count();
  EXPECT_TRUE(SegmentSizes().empty());
  ASSERT_TRUE(store_->ReserveRound(0, 0, 2).ok());
  EXPECT_EQ(SegmentSizes(), (std::vector<int64_t>{own, own}));
  Bind(Info(0));
  EXPECT_EQ(SegmentSizes().size(), 2);
}

INSTANTIATE_TEST_SUITE_P(All, RunStoreCodecsTest,
                         testing::ValuesIn(codec::AllCodecs().begin(),
                                           codec::AllCodecs().end()),
                         [](const auto& info) {
                           return std::string(codec::CodecName(info.param));
                         });

}  // namespace
}  // namespace atl::server
