#include "server/core/mirror_queue.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace atl::server {
namespace {

class MirrorQueueTest : public ::testing::Test {
 protected:
  void AddPin(int64_t commit_seq, bool checkpoint = true) {
    v1::Pin& pin = *pins_.Add();
    pin.set_pin_id("round-" + std::to_string(commit_seq));
    pin.set_commit_seq(commit_seq);
    pin.set_checkpoint(checkpoint);
    durable_.insert(pin.pin_id());
  }

  // The commit_seq of the next upload; 0: none.
  int64_t Next() {
    const auto next = queue_.Next(pins_, [this](const std::string& pin_id) {
      return durable_.contains(pin_id);
    });
    return next.has_value() ? next->commit_seq() : 0;
  }

  void EndUpload(const v1::Pin& pin) {
    v1::MirroredPart part;
    part.set_fragment(0);
    part.set_sha256("ab");
    queue_.OnMirrored(pin, {part}, {"theta"});
  }

  bool IsReported(const v1::Pin& pin) {
    v1::ShardCheckpoint checkpoint;
    checkpoint.set_pin_id(pin.pin_id());
    checkpoint.set_commit_seq(pin.commit_seq());
    queue_.AddTo(checkpoint);
    return checkpoint.mirrored() && checkpoint.mirrored_parts_size() == 1 &&
           checkpoint.array_names_size() == 1;
  }

  google::protobuf::RepeatedPtrField<v1::Pin> pins_;
  std::set<std::string> durable_;
  MirrorQueue queue_;
};

TEST_F(MirrorQueueTest, TheNewestGoesFirstThenTheOlderOnes) {
  AddPin(5);
  AddPin(9);
  AddPin(7);
  AddPin(11, /*checkpoint=*/false);
  EXPECT_EQ(Next(), 9);
  EXPECT_EQ(Next(), 0);
  EndUpload(pins_[1]);
  EXPECT_TRUE(IsReported(pins_[1]));
  EXPECT_EQ(Next(), 7);
  EndUpload(pins_[2]);
  EXPECT_EQ(Next(), 5);
  EndUpload(pins_[0]);
  EXPECT_EQ(Next(), 0);
}

TEST_F(MirrorQueueTest, AnOlderUploadThatStillRunsCounts) {
  AddPin(5);
  EXPECT_EQ(Next(), 5);
  AddPin(6);
  EXPECT_EQ(Next(), 6);
  EndUpload(pins_[0]);
  EXPECT_EQ(Next(), 0);
  EXPECT_TRUE(IsReported(pins_[0]));
  EndUpload(pins_[1]);
  EXPECT_EQ(Next(), 0);
}

TEST_F(MirrorQueueTest, AnOlderUploadThatWasReplacedComesAgain) {
  AddPin(5);
  EXPECT_EQ(Next(), 5);
  AddPin(6);
  EXPECT_EQ(Next(), 6);
  EndUpload(pins_[1]);
  EXPECT_EQ(Next(), 5);
}

TEST_F(MirrorQueueTest, OnlyADurableCheckpointIsUploaded) {
  AddPin(5);
  durable_.clear();
  EXPECT_EQ(Next(), 0);
  durable_.insert("round-5");
  EXPECT_EQ(Next(), 5);
}

TEST_F(MirrorQueueTest, ACheckpointThatIsWholeInTheMirrorIsLeftAlone) {
  AddPin(5);
  EXPECT_EQ(Next(), 5);
  EndUpload(pins_[0]);
  pins_[0].mutable_mirror()->set_run_epoch(1);
  EXPECT_EQ(Next(), 0);
  EXPECT_FALSE(IsReported(pins_[0]));
}

TEST_F(MirrorQueueTest, AnotherCutOfTheSameNameIsUploaded) {
  AddPin(5);
  EXPECT_EQ(Next(), 5);
  EndUpload(pins_[0]);
  pins_[0].set_commit_seq(8);
  EXPECT_FALSE(IsReported(pins_[0]));
  EXPECT_EQ(Next(), 8);
}

}  // namespace
}  // namespace atl::server
