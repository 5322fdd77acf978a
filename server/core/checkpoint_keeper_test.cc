#include "server/core/checkpoint_keeper.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

// A shard with blocks of fragments 0 and 1, and none of 2.
class CheckpointKeeperTest : public testing::Test {
 protected:
  CheckpointKeeperTest() { Start({}); }

  void Start(std::vector<ManifestFact> found) {
    keeper_.emplace(std::vector<bool>{true, true, false}, std::move(found));
  }
  void Pin(const std::string& pin_id, int64_t version, bool checkpoint = true) {
    v1::Pin* pin = pins_.Add();
    pin->set_pin_id(pin_id);
    pin->set_commit_seq(10 + version);
    pin->set_checkpoint(checkpoint);
    for (int32_t f = 0; f < 3; ++f) {
      pin->add_cut()->set_fragment(f);
      pin->mutable_cut(f)->set_version(version);
    }
  }
  // "write a; drop b".
  std::string Next() {
    const CheckpointKeeper::Work work = keeper_->Next(
        pins_, [this](int32_t f) { return persisted_[f]; });
    std::string text;
    for (const auto& pin : work.to_write) {
      absl::StrAppend(&text, "write ", pin.pin_id(), ";");
    }
    for (const auto& id : work.to_drop)
      absl::StrAppend(&text, "drop ", id, ";");
    return text;
  }
  // "a durable;b fault;".
  std::string Report() {
    v1::ShardReport report;
    keeper_->Report(&report);
    std::string text;
    for (const auto& c : report.checkpoints()) {
      absl::StrAppend(&text, c.pin_id(), c.durable() ? " durable;" : " fault;");
      EXPECT_EQ(c.durable(), c.fault().empty());
    }
    return text;
  }
  static ManifestFact Found(const std::string& pin_id, int64_t version,
                            const std::string& fault = "") {
    return {pin_id, 10 + version, {{0, version}, {1, version}}, fault};
  }

  std::optional<CheckpointKeeper> keeper_;
  google::protobuf::RepeatedPtrField<v1::Pin> pins_;
  int64_t persisted_[3] = {5, 5, 5};
};

TEST_F(CheckpointKeeperTest, WritesACheckpointOnceAndReportsItWhenItIsDurable) {
  Pin("a", 5);
  EXPECT_EQ(Next(), "write a;");
  EXPECT_EQ(Next(), "");
  EXPECT_EQ(Report(), "");
  keeper_->OnWritten("a");
  EXPECT_EQ(Report(), "a durable;");
  EXPECT_EQ(Next(), "");
}

TEST_F(CheckpointKeeperTest, WaitsUntilAllItsVersionsArePersisted) {
  Pin("a", 6);
  persisted_[0] = 6;
  EXPECT_EQ(Next(), "");
  persisted_[1] = 6;
  EXPECT_EQ(Next(), "write a;");
}

TEST_F(CheckpointKeeperTest, HasNothingToDoWithLeases) {
  Pin("a", 5, /*checkpoint=*/false);
  EXPECT_EQ(Next(), "");
  EXPECT_FALSE(keeper_->Names(0, 5));
}

TEST_F(CheckpointKeeperTest, HoldsItsVersionsUntilItsManifestIsDeleted) {
  Pin("a", 5);
  Next();
  EXPECT_TRUE(keeper_->Names(1, 5));
  EXPECT_FALSE(keeper_->Names(2, 5));
  keeper_->OnWritten("a");
  pins_.Clear();
  EXPECT_EQ(Next(), "drop a;");
  EXPECT_EQ(Report(), "");
  EXPECT_TRUE(keeper_->Names(0, 5));
  EXPECT_EQ(Next(), "");
  keeper_->OnDropped("a");
  EXPECT_FALSE(keeper_->Names(0, 5));
}

TEST_F(CheckpointKeeperTest, APinThatGoesWhileItIsWrittenIsDroppedAfterwards) {
  Pin("a", 5);
  Next();
  pins_.Clear();
  EXPECT_EQ(Next(), "");
  keeper_->OnWritten("a");
  EXPECT_EQ(Next(), "drop a;");
}

TEST_F(CheckpointKeeperTest, AFullDiskIsTriedAgainDamageIsNot) {
  Pin("a", 5);
  Next();
  keeper_->OnFailed("a", absl::ResourceExhaustedError("full"));
  EXPECT_EQ(Report(), "");
  EXPECT_EQ(Next(), "write a;");
  keeper_->OnFailed("a", absl::DataLossError("bad"));
  EXPECT_EQ(Report(), "a fault;");
  EXPECT_EQ(Next(), "");
}

TEST_F(CheckpointKeeperTest, AStartKnowsWhatItFoundAndDeletesWhatNoPinNames) {
  Start({Found("a", 3), Found("b", 4), Found("c", 5, "short")});
  Pin("a", 3);
  Pin("c", 5);
  EXPECT_EQ(Next(), "drop b;");
  EXPECT_EQ(Report(), "a durable;c fault;");
}

TEST_F(CheckpointKeeperTest, AManifestThatCannotBeDroppedIsDroppedLater) {
  Start({Found("a", 3), Found("b", 4, "short")});
  EXPECT_EQ(Next(), "drop a;drop b;");
  keeper_->OnFailed("a", absl::UnavailableError("not now"));
  keeper_->OnFailed("b", absl::DataLossError("bad"));
  EXPECT_EQ(Report(), "a durable;b fault;");
  EXPECT_TRUE(keeper_->Names(0, 3));
  EXPECT_EQ(Next(), "drop a;drop b;");
}

TEST_F(CheckpointKeeperTest, AnotherCutUnderAnOldNameIsWrittenAnew) {
  Start({Found("a", 3)});
  Pin("a", 5);
  EXPECT_EQ(Next(), "drop a;");
  keeper_->OnDropped("a");
  EXPECT_EQ(Next(), "write a;");
}

TEST_F(CheckpointKeeperTest, ARestoredRunKeepsTheCheckpointsThatItStillPins) {
  Start({Found("a", 3), Found("b", 5)});
  Pin("a", 3);
  EXPECT_EQ(Next(), "drop b;");
  EXPECT_EQ(Report(), "a durable;");
}

TEST_F(CheckpointKeeperTest, WhatAReaderFindsDamagedIsBroken) {
  Start({Found("a", 3), Found("b", 4)});
  Pin("a", 3);
  Pin("b", 4);
  Next();
  keeper_->OnDamaged(1, 4, "a checksum does not match");
  EXPECT_EQ(Report(), "a durable;b fault;");
}

}  // namespace
}  // namespace atl::server
