// Not in run_random_test: bounds that need a long run, invalid snapshots.

#include "coordinator/core/state/run_state.h"

#include <string>
#include <vector>

#include "coordinator/core/coordinator.h"
#include "coordinator/core/testing/run_simulation.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

class RunStateTest : public testing::Test {
 protected:
  RunStateTest() {
    storage::v1::Record record;
    record.mutable_run_created()->set_run_id("run");
    *record.mutable_run_created()->mutable_spec() = SimpleSpec();
    record.mutable_run_created()->set_run_epoch(1);
    Apply(record);
    record.mutable_member_set()->set_island_id("a");
    Apply(record);
  }

  void Apply(storage::v1::Record record) {
    record.set_revision(state_.revision() + 1);
    const absl::Status applied = state_.Apply(record);
    ASSERT_TRUE(applied.ok()) << applied;
  }

  void Evaluate(int64_t version) {
    storage::v1::Record record;
    record.mutable_evaluated()->mutable_evaluation()->set_version(version);
    Apply(record);
  }

  RunState state_;
};

TEST_F(RunStateTest, KnowsTheNewestLossAndAFailureThatIsNewer) {
  const auto fail = [&](int64_t version) {
    storage::v1::Record record;
    v1::Evaluation& evaluation =
        *record.mutable_evaluated()->mutable_evaluation();
    evaluation.set_version(version);
    evaluation.set_failure("the held-out loss is nan");
    Apply(record);
  };
  fail(1);
  EXPECT_EQ(state_.newest_evaluation(), nullptr);
  EXPECT_EQ(state_.newest_failed_evaluation()->version(), 1);
  Evaluate(3);
  fail(2);  // It comes late.
  EXPECT_TRUE(state_.IsEvaluated(2));
  EXPECT_EQ(state_.newest_evaluation()->version(), 3);
  EXPECT_EQ(state_.newest_failed_evaluation(), nullptr);
  fail(4);
  EXPECT_EQ(state_.newest_evaluation()->version(), 3);
  EXPECT_EQ(state_.newest_failed_evaluation()->version(), 4);
  EXPECT_EQ(state_.evaluation_points().size(), 1u);
}

TEST_F(RunStateTest, KnowsTheNewestEvaluationsAndCountsOlderOnesAsMade) {
  const auto max = static_cast<int64_t>(kEvaluationsMax);
  // Every tenth version, the first two in reverse order.
  Evaluate(20);
  Evaluate(10);
  for (int64_t i = 3; i <= max + 1; ++i) Evaluate(i * 10);
  EXPECT_EQ(state_.newest_evaluation()->version(), (max + 1) * 10);
  const auto check = [&](const RunState& state) {
    EXPECT_TRUE(state.IsEvaluated(5));   // Older than all that are kept.
    EXPECT_TRUE(state.IsEvaluated(10));  // The one that was forgotten.
    EXPECT_FALSE(state.IsEvaluated(11));
    EXPECT_TRUE(state.IsEvaluated(20));
    EXPECT_FALSE(state.IsEvaluated((max + 2) * 10));
  };
  check(state_);
  RunState restored;
  ASSERT_TRUE(restored.Restore(state_.ToSnapshot(), state_.revision()).ok());
  check(restored);
}

TEST_F(RunStateTest, RefusesASnapshotThatIsNotWhole) {
  const storage::v1::RunSnapshot good = state_.ToSnapshot();
  storage::v1::RunSnapshot no_spec = good;
  no_spec.mutable_created()->clear_spec();
  storage::v1::RunSnapshot no_fragment = good;
  no_fragment.clear_fragments();
  storage::v1::RunSnapshot other_fragment = good;
  other_fragment.mutable_fragments(0)->mutable_newest()->set_fragment(7);
  storage::v1::RunSnapshot gap = good;
  gap.mutable_members(0)->mutable_member()->set_slot(1);
  for (const auto& bad : {no_spec, no_fragment, other_fragment, gap}) {
    RunState restored;
    EXPECT_EQ(restored.Restore(bad, 2).code(), absl::StatusCode::kDataLoss);
  }
  RunState restored;
  EXPECT_TRUE(restored.Restore(good, 2).ok());
  EXPECT_EQ(restored.Restore(good, 2).code(), absl::StatusCode::kDataLoss);
}

TEST_F(RunStateTest, KeepsTheUidThatTheRunWasCreatedWith) {
  storage::v1::RunSnapshot snapshot = state_.ToSnapshot();
  snapshot.mutable_created()->set_run_uid("uid");
  RunState restored;
  ASSERT_TRUE(restored.Restore(snapshot, state_.revision()).ok());
  EXPECT_EQ(restored.run_uid(), "uid");
  EXPECT_EQ(restored.ToSnapshot().created().run_uid(), "uid");
}

// Copies of `record` with a wrong fragment, version, attempt or cut.
std::vector<storage::v1::Record> Misfits(const storage::v1::Record& record) {
  std::vector<storage::v1::Record> misfits;
  const auto change = [&](auto part_of) {
    for (int i = 0; i < 3; ++i) {
      auto& part = part_of(misfits.emplace_back(record));
      if (i == 0) part.set_fragment(part.fragment() + 1);
      if (i == 1) part.set_version(part.version() + 1);
      if (i == 2) part.set_attempt(part.attempt() + 1);
    }
  };
  if (record.has_round_opened()) {
    change([](storage::v1::Record& of) -> v1::OpenRound& {
      return *of.mutable_round_opened();
    });
  } else if (record.has_round_sealed()) {
    change([](storage::v1::Record& of) -> v1::Seal& {
      return *of.mutable_round_sealed()->mutable_seal();
    });
    misfits.emplace_back(record).mutable_round_sealed()->clear_infos();
  } else if (record.has_round_committed()) {
    change([](storage::v1::Record& of) -> v1::Commit& {
      return *of.mutable_round_committed()->mutable_commit();
    });
    v1::Commit& commit = *misfits.emplace_back(record)
                              .mutable_round_committed()
                              ->mutable_commit();
    commit.set_commit_seq(commit.commit_seq() + 1);
  }
  return misfits;
}

TEST_F(RunStateTest, RefusesARecordOfAnotherRoundThanTheOneThatIsUnderWay) {
  RunSimulation run(SimpleSpec());
  run.StartServers();
  for (const char* id : {"i0", "i1"}) {
    ASSERT_TRUE(run.Join(id).ok());
    ASSERT_TRUE(run.Ready(id).ok());
  }
  run.Settle();
  RunState state;
  int misfit_count = 0;
  for (const storage::v1::Record& record : run.log()) {
    for (const storage::v1::Record& misfit : Misfits(record)) {
      RunState copy = state;
      EXPECT_EQ(copy.Apply(misfit).code(), absl::StatusCode::kDataLoss)
          << misfit.ShortDebugString();
      ++misfit_count;
    }
    ASSERT_TRUE(state.Apply(record).ok());
  }
  EXPECT_GE(misfit_count, 11);
}

TEST_F(RunStateTest, RefusesASnapshotOfANewerFormatOrOfAnotherLog) {
  LogSnapshot taken;
  taken.run_id = "run";
  taken.snapshot.set_format(kSnapshotFormat);
  taken.snapshot.set_revision(state_.revision());
  *taken.snapshot.mutable_run() = state_.ToSnapshot();
  EXPECT_TRUE(Coordinator({}).Restore(taken).ok());
  taken.run_id = "";
  EXPECT_EQ(Coordinator({}).Restore(taken).code(), absl::StatusCode::kDataLoss);
  taken.run_id = "run";
  taken.snapshot.set_format(kSnapshotFormat + 1);
  EXPECT_EQ(Coordinator({}).Restore(taken).code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace atl::coordinator
