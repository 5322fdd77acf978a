#include "worker/island/meter/phase_meter.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/time/proto_time.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

// Second `n` of the test.
absl::Time At(int n) {
  return absl::UnixEpoch() + absl::Hours(1) + absl::Seconds(n);
}

// "7: TRAIN 0+2, ENCODE 2+1": seq, then begin and duration of each phase.
std::vector<std::string> Describe(const std::vector<v1::SyncPhases>& syncs) {
  std::vector<std::string> lines;
  for (const v1::SyncPhases& sync : syncs) {
    std::string line = absl::StrCat(sync.seq(), ":");
    for (const v1::PhaseTime& phase : sync.phases()) {
      absl::StrAppend(
          &line, line.back() == ':' ? " " : ", ",
          v1::Phase_Name(phase.phase()).substr(sizeof("PHASE_") - 1), " ",
          absl::ToInt64Seconds(FromProto(phase.start_time()) - At(0)), "+",
          absl::ToInt64Seconds(FromProto(phase.duration())));
    }
    lines.push_back(line);
  }
  return lines;
}

class PhaseMeterTest : public testing::Test {
 protected:
  std::vector<std::string> Ended() { return Describe(meter_.TakeEnded()); }
  void Settle(bool decided, int now) {
    meter_.Settle([=](const AnchoredFragment&, int64_t) { return decided; },
                  At(now));
  }
  void Train(int begin, int end) {
    for (int n = begin; n < end; ++n) meter_.Stepped(At(n), At(n + 1));
  }
  void Encode(int64_t seq, std::vector<AnchoredFragment> of, int begin,
              int end) {
    meter_.EncodeBegan(seq, of, At(begin));
    meter_.EncodeEnded(seq, At(end));
  }
  void Push(int64_t seq, const AnchoredFragment& at, int begin, int end) {
    meter_.PushBegan(seq, at, At(begin));
    meter_.PushEnded(seq, at.fragment, At(end));
  }
  void Pull(int32_t fragment, int64_t version, int begin, int end) {
    meter_.Pulled(fragment, version, At(begin), At(end));
  }

  PhaseMeter meter_;
};

TEST_F(PhaseMeterTest, PhasesOfARoundFollowEachOther) {
  meter_.Began();
  Train(1, 4);
  Encode(7, {{0, 2}, {1, 2}}, 4, 6);
  Push(7, {0, 2}, 6, 8);
  Push(7, {1, 2}, 8, 9);
  Settle(false, 9);
  Settle(true, 12);
  Pull(0, 3, 12, 13);
  EXPECT_TRUE(Ended().empty());
  Pull(1, 3, 13, 15);
  EXPECT_EQ(Ended(), std::vector<std::string>{
                         "7: TRAIN 1+3, ENCODE 4+2, PUSH 6+3, WAIT 9+3, "
                         "APPLY 12+3"});
  EXPECT_TRUE(Ended().empty());
}

TEST_F(PhaseMeterTest, TheNextRoundTrainsFromItsOwnFirstStep) {
  meter_.Began();
  Train(0, 2);
  Encode(1, {{0, 0}}, 2, 3);
  meter_.Began();
  Train(10, 12);
  Encode(2, {{0, 1}}, 12, 13);
  meter_.EndAll();
  EXPECT_EQ(Ended(), (std::vector<std::string>{"1: TRAIN 0+2, ENCODE 2+1",
                                               "2: TRAIN 10+2, ENCODE 12+1"}));
}

TEST_F(PhaseMeterTest, AnOutcomeThatOvertakesThePushEndsIt) {
  Train(0, 1);
  Encode(1, {{0, 0}}, 1, 2);
  meter_.PushBegan(1, {0, 0}, At(2));
  Settle(true, 5);
  meter_.PushEnded(1, 0, At(6));
  meter_.EndAll();
  EXPECT_EQ(Ended(), std::vector<std::string>{
                         "1: TRAIN 0+1, ENCODE 1+1, PUSH 2+3, WAIT 5+0"});
}

TEST_F(PhaseMeterTest, ARetriedEncodeCountsFromItsFirstAttempt) {
  Train(0, 1);
  meter_.EncodeBegan(1, {{0, 0}}, At(1));
  Encode(1, {{0, 0}}, 4, 5);
  meter_.EndAll();
  EXPECT_EQ(Ended(),
            std::vector<std::string>{"1: TRAIN 0+1, ENCODE 1+4"});
}

TEST_F(PhaseMeterTest, AContributionThatIsNeverEncodedLeavesItsSeqToTheNext) {
  Train(0, 1);
  meter_.EncodeBegan(1, {{0, 0}}, At(1));
  meter_.Began();
  Train(5, 6);
  Encode(1, {{0, 1}}, 6, 7);
  meter_.EndAll();
  EXPECT_EQ(Ended(),
            std::vector<std::string>{"1: TRAIN 5+1, ENCODE 6+1"});
}

TEST_F(PhaseMeterTest, ARestartedIslandHasThePhasesThatItSaw) {
  Push(4, {0, 3}, 0, 1);
  Settle(true, 3);
  Pull(0, 4, 3, 5);
  EXPECT_EQ(Ended(),
            std::vector<std::string>{"4: PUSH 0+1, WAIT 1+2, APPLY 3+2"});
}

TEST_F(PhaseMeterTest, APullOfTheHeldVersionAppliesNothing) {
  Train(0, 1);
  Encode(1, {{0, 3}}, 1, 2);
  Push(1, {0, 3}, 2, 3);
  Settle(true, 4);
  Pull(0, 3, 4, 5);
  EXPECT_TRUE(Ended().empty());
}

// Fragment 0 is pushed after steps 0..1, fragment 1 after steps 0..3; the
// answer of fragment 0 is applied after step 3.
TEST_F(PhaseMeterTest, PhasesOfAStreamOverlap) {
  meter_.set_streaming(true);
  meter_.Began();
  Train(0, 2);
  meter_.EncodeBegan(1, {{0, 0}}, At(2));
  Train(2, 4);
  meter_.EncodeEnded(1, At(3));
  Push(1, {0, 0}, 3, 4);
  meter_.Settle([](const AnchoredFragment& at,
                   int64_t) { return at.fragment == 0; },
                At(5));
  Pull(0, 1, 5, 6);
  Encode(2, {{1, 0}}, 4, 7);
  EXPECT_TRUE(Ended().empty());
  meter_.Applied(0, 1, At(8));
  EXPECT_EQ(Ended(), std::vector<std::string>{
                         "1: TRAIN 0+2, ENCODE 2+1, PUSH 3+1, WAIT 4+1, "
                         "APPLY 5+3"});
  Train(8, 9);
  Encode(3, {{0, 1}}, 9, 10);
  meter_.EndAll();
  EXPECT_EQ(Ended(), (std::vector<std::string>{"2: TRAIN 0+4, ENCODE 4+3",
                                               "3: TRAIN 2+7, ENCODE 9+1"}));
}

TEST_F(PhaseMeterTest, MeasuresABoundedNumberAtOnce) {
  for (int64_t seq = 1; seq <= 1000; ++seq) {
    Push(seq, {static_cast<int32_t>(seq), 0}, 0, 1);
  }
  meter_.EndAll();
  const std::vector<v1::SyncPhases> ended = meter_.TakeEnded();
  ASSERT_EQ(ended.size(), PhaseMeter::kOpenCountMax);
  EXPECT_EQ(ended.back().seq(), 1000);
}

}  // namespace
}  // namespace atl::worker
