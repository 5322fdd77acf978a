#include "coordinator/core/state/phase_table.h"

#include <vector>

#include "absl/time/time.h"
#include "base/time/proto_time.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

// A synchronization whose apply phase is named before its train phase.
v1::SyncPhases MakeSync(int64_t seq, absl::Duration train) {
  v1::SyncPhases sync;
  sync.set_seq(seq);
  const auto add = [&](v1::Phase phase, absl::Time start,
                       absl::Duration duration) {
    v1::PhaseTime& added = *sync.add_phases();
    added.set_phase(phase);
    *added.mutable_start_time() = ToProto(start);
    *added.mutable_duration() = ToProto(duration);
  };
  add(v1::PHASE_APPLY, absl::FromUnixSeconds(2000), absl::ZeroDuration());
  add(v1::PHASE_TRAIN, absl::FromUnixSeconds(1000), train);
  return sync;
}

TEST(PhaseTableTest, GivesPhasesBackInTheOrderOfTheirStart) {
  PhaseTable table;
  EXPECT_TRUE(table.Add(MakeSync(7, absl::Milliseconds(1500))));
  const std::vector<v1::PhaseTime> phases = table.Find(7);
  ASSERT_EQ(phases.size(), 2);
  EXPECT_EQ(phases[0].phase(), v1::PHASE_TRAIN);
  EXPECT_EQ(FromProto(phases[0].start_time()), absl::FromUnixSeconds(1000));
  EXPECT_EQ(FromProto(phases[0].duration()), absl::Milliseconds(1500));
  EXPECT_EQ(phases[1].phase(), v1::PHASE_APPLY);
  EXPECT_EQ(FromProto(phases[1].duration()), absl::ZeroDuration());
  EXPECT_TRUE(table.Find(6).empty());
  EXPECT_TRUE(table.Find(8).empty());
}

TEST(PhaseTableTest, ARepeatedSeqChangesNothing) {
  PhaseTable table;
  EXPECT_TRUE(table.Add(MakeSync(7, absl::Seconds(1))));
  EXPECT_FALSE(table.Add(MakeSync(7, absl::Seconds(2))));
  EXPECT_EQ(FromProto(table.Find(7)[0].duration()), absl::Seconds(1));
}

TEST(PhaseTableTest, KeepsTheNewest) {
  PhaseTable table;
  const auto count = static_cast<int64_t>(PhaseTable::kKeptMax);
  for (int64_t seq = 10; seq < 10 + count; ++seq) {
    EXPECT_TRUE(table.Add(MakeSync(seq, absl::Seconds(seq))));
  }
  EXPECT_FALSE(table.Add(MakeSync(9, absl::Seconds(9))));
  EXPECT_FALSE(table.Find(10).empty());
  EXPECT_TRUE(table.Add(MakeSync(10 + count, absl::Seconds(1))));
  EXPECT_TRUE(table.Find(10).empty());
  EXPECT_FALSE(table.Find(11).empty());
  EXPECT_FALSE(table.Find(10 + count).empty());
}

TEST(PhaseTableTest, KnowsTheMedianOfTheNewestPushes) {
  PhaseTable table;
  EXPECT_EQ(table.MedianPush(3), absl::ZeroDuration());
  for (const int64_t seq : {1, 2, 3, 4}) {
    v1::SyncPhases sync = MakeSync(seq, absl::Seconds(100));
    sync.mutable_phases(0)->set_phase(seq == 4 ? v1::PHASE_TRAIN
                                               : v1::PHASE_PUSH);
    *sync.mutable_phases(0)->mutable_duration() =
        ToProto(absl::Seconds(10 * seq));
    EXPECT_TRUE(table.Add(sync));
  }
  // Of 20 and 30 s; the newest has no push.
  EXPECT_EQ(table.MedianPush(3), absl::Seconds(20));
  EXPECT_EQ(table.MedianPush(1), absl::ZeroDuration());
}

// Another thread may read the copy.
TEST(PhaseTableTest, ACopyStaysAsItIs) {
  PhaseTable table;
  EXPECT_TRUE(table.Add(MakeSync(7, absl::Seconds(7))));
  const PhaseTable copy = table;
  EXPECT_TRUE(table.Add(MakeSync(8, absl::Seconds(8))));
  EXPECT_TRUE(table.Add(MakeSync(9, absl::Seconds(9))));
  EXPECT_FALSE(copy.Find(7).empty());
  EXPECT_TRUE(copy.Find(8).empty());
  EXPECT_FALSE(table.Find(7).empty());
  EXPECT_FALSE(table.Find(8).empty());
  PhaseTable other = copy;
  EXPECT_TRUE(other.Add(MakeSync(10, absl::Seconds(10))));
  EXPECT_TRUE(copy.Find(10).empty());
  EXPECT_TRUE(table.Find(10).empty());
}

TEST(PhaseTableTest, FindsASeqThatCameLate) {
  PhaseTable table;
  EXPECT_TRUE(table.Add(MakeSync(9, absl::Seconds(9))));
  EXPECT_TRUE(table.Add(MakeSync(8, absl::Seconds(8))));
  EXPECT_EQ(FromProto(table.Find(8)[0].duration()), absl::Seconds(8));
  EXPECT_EQ(FromProto(table.Find(9)[0].duration()), absl::Seconds(9));
}

}  // namespace
}  // namespace atl::coordinator
