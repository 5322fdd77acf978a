#include "worker/core/save_replay.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

using Kind = SaveReplay::Kind;
constexpr int64_t kBatch = 4;

SaveSummary MakeSummary(int64_t clock, int64_t rate_offset = 0) {
  SaveSummary summary;
  summary.clock = clock;
  summary.rate_offset = rate_offset;
  summary.data_shard = 2;
  summary.data_position = 100 + clock * kBatch;
  return summary;
}

// Runs it, `steps_max` steps at a time.
std::string Repeat(SaveReplay replay, int64_t steps_max) {
  std::string done;
  for (int i = 0; i < 1000; ++i) {
    const SaveReplay::Unit unit = replay.Next();
    int64_t step_count = 0;
    switch (unit.kind) {
      case Kind::kDone:
        return done;
      case Kind::kAnswer:
        absl::StrAppend(&done, " answer ", unit.record, ".", unit.answer);
        break;
      case Kind::kPush:
        absl::StrAppend(&done, " push ", unit.record);
        break;
      case Kind::kTrain:
        step_count = std::min(unit.step_count, steps_max);
        EXPECT_EQ(unit.data_shard, 2);
        absl::StrAppend(&done, " steps ", unit.step, "+", step_count, "@",
                        unit.data_position);
        break;
    }
    replay.OnDone(unit, step_count);
  }
  return "no end";
}

TEST(SaveReplayTest, RepeatsStepsAnswersAndPushesInTheirOrder) {
  const SaveReplay replay(MakeSummary(10),
                          {{MakeSummary(13, 5), {{.clock = 10}, {.clock = 12}}},
                           {MakeSummary(13, 5), {}},
                           {MakeSummary(15), {{.clock = 15}}}},
                          kBatch);
  EXPECT_TRUE(replay.IsSound());
  EXPECT_EQ(Repeat(replay, 100),
            " answer 0.0 steps 10+2@140 answer 0.1 steps 12+1@148 push 0 push "
            "1 steps 18+2@152 answer 2.0 push 2");
  EXPECT_EQ(Repeat(replay, 1),
            " answer 0.0 steps 10+1@140 steps 11+1@144 answer 0.1 steps "
            "12+1@148 push 0 push 1 steps 18+1@152 steps 19+1@156 answer 2.0 "
            "push 2");
}

TEST(SaveReplayTest, WithoutRecordsNothingFollows) {
  EXPECT_EQ(Repeat(SaveReplay(MakeSummary(3), {}, kBatch), 1), "");
  EXPECT_TRUE(SaveReplay(MakeSummary(3), {}, kBatch).IsSound());
}

TEST(SaveReplayTest, RecordsOfAnotherLifeAreNotSound) {
  const SaveSummary whole = MakeSummary(10);
  EXPECT_FALSE(SaveReplay(whole, {{MakeSummary(9), {}}}, kBatch).IsSound());
  EXPECT_FALSE(SaveReplay(whole, {{MakeSummary(12), {{.clock = 13}}}}, kBatch)
                   .IsSound());
  EXPECT_FALSE(
      SaveReplay(whole, {{MakeSummary(12), {{.clock = 9}}}}, kBatch).IsSound());
  SaveSummary other = MakeSummary(12);
  other.data_shard = 3;
  EXPECT_FALSE(SaveReplay(whole, {{other, {}}}, kBatch).IsSound());
  other = MakeSummary(12);
  ++other.data_position;
  EXPECT_FALSE(SaveReplay(whole, {{other, {}}}, kBatch).IsSound());
}

}  // namespace
}  // namespace atl::worker
