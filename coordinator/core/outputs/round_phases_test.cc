#include "coordinator/core/outputs/round_phases.h"

#include <string>

#include "absl/time/time.h"
#include "base/time/proto_time.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

class RoundPhasesTest : public RunSimulationTest {
 protected:
  RoundPhasesTest() {
    Start(SimpleSpec());
    run_->Settle();
  }

  // The page of all rounds, with the phases that are known.
  v1::ListRoundsResponse Page(int64_t bytes_max = 1 << 20) {
    v1::ListRoundsResponse page;
    for (const storage::v1::Record& record : run_->log()) {
      if (record.has_round_committed()) {
        *page.add_rounds() = record.round_committed().round();
      }
    }
    AddPhases(ListPhases(run_->state(), run_->machine().observed()), bytes_max,
              page);
    return page;
  }

  // Reports that the island trained for a minute for its contribution to the
  // first round.
  void Report(const std::string& island_id, int32_t slot) {
    v1::ReportProgressRequest request;
    v1::SyncPhases& sync = *request.add_sync_phases();
    sync.set_seq(Page().rounds(0).contributions(slot).info().key().seq());
    v1::PhaseTime& phase = *sync.add_phases();
    phase.set_phase(v1::PHASE_TRAIN);
    *phase.mutable_start_time() = ToProto(absl::FromUnixSeconds(5));
    *phase.mutable_duration() = ToProto(absl::Minutes(1));
    const absl::Status status =
        run_->machine()
            .Step(event::Progress{run_->Credentials(island_id), request},
                  run_->now())
            .status();
    ASSERT_TRUE(status.ok()) << status;
  }
};

TEST_F(RoundPhasesTest, ARoundHasTheReportedPhasesAndTheMerge) {
  Report("i1", 1);
  const v1::Round round = Page().rounds(0);
  ASSERT_EQ(round.contributions_size(), 2);
  // Nothing is known of the other island.
  EXPECT_EQ(round.contributions(0).phases_size(), 0);
  ASSERT_EQ(round.contributions(1).phases_size(), 2);
  const v1::PhaseTime& train = round.contributions(1).phases(0);
  EXPECT_EQ(train.phase(), v1::PHASE_TRAIN);
  EXPECT_EQ(FromProto(train.duration()), absl::Minutes(1));
  const v1::PhaseTime& merge = round.contributions(1).phases(1);
  EXPECT_EQ(merge.phase(), v1::PHASE_MERGE);
  EXPECT_EQ(FromProto(merge.start_time()), FromProto(round.seal_time()));
  EXPECT_EQ(FromProto(merge.start_time()) + FromProto(merge.duration()),
            FromProto(round.commit_time()));
  EXPECT_EQ(Page().rounds(1).contributions(1).phases_size(), 0);
}

TEST_F(RoundPhasesTest, AnIslandThatTookOverTheSlotLendsNoPhases) {
  Report("i1", 1);
  v1::ListRoundsResponse page;
  v1::RoundContribution& contribution =
      *page.add_rounds()->add_contributions();
  contribution = Page().rounds(0).contributions(1);
  contribution.clear_phases();
  contribution.set_island_id("before");
  AddPhases(ListPhases(run_->state(), run_->machine().observed()), 1 << 20,
            page);
  EXPECT_EQ(contribution.phases_size(), 0);
}

TEST_F(RoundPhasesTest, AnUnmergedContributionHasNoMerge) {
  Report("i1", 1);
  v1::ListRoundsResponse page;
  v1::RoundContribution& contribution =
      *page.add_rounds()->add_contributions();
  contribution = Page().rounds(0).contributions(1);
  contribution.clear_phases();
  contribution.set_outcome(v1::OUTCOME_LATE);
  AddPhases(ListPhases(run_->state(), run_->machine().observed()), 1 << 20,
            page);
  ASSERT_EQ(contribution.phases_size(), 1);
  EXPECT_EQ(contribution.phases(0).phase(), v1::PHASE_TRAIN);
}

TEST_F(RoundPhasesTest, ATooLargePageContinuesWithTheRoundsThatItLeavesOut) {
  EXPECT_EQ(Page().rounds_size(), 3);
  EXPECT_EQ(Page().next_page_token(), "");
  const v1::ListRoundsResponse page = Page(1);
  EXPECT_EQ(page.rounds_size(), 1);
  EXPECT_EQ(page.next_page_token(), "1");
}

}  // namespace
}  // namespace atl::coordinator
