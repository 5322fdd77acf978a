#include "coordinator/core/deleted_runs.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DeletedRunsTest : public testing::Test {
 protected:
  void Delete(const std::string& run_id, const std::string& run_uid,
              const std::vector<std::string>& server_ids) {
    storage::v1::RunDeleted deleted;
    deleted.set_run_id(run_id);
    deleted.set_run_uid(run_uid);
    for (const std::string& id : server_ids) deleted.add_server_ids(id);
    runs_.Add(deleted);
  }

  void Forget(const std::string& run_uid, const std::string& server_id) {
    storage::v1::RunForgotten forgotten;
    forgotten.set_run_uid(run_uid);
    forgotten.set_server_id(server_id);
    runs_.Forget(forgotten);
  }

  // The run_uids in the plan of `server_id`.
  std::vector<std::string> Named(const std::string& server_id) const {
    v1::ServerPlan plan;
    runs_.AddToPlan(server_id, plan);
    std::vector<std::string> uids;
    for (const v1::DeletedRun& run : plan.deleted_runs()) {
      uids.push_back(run.run_uid());
    }
    return uids;
  }

  static v1::ReportShardsRequest Report(
      const std::string& server_id, int64_t report_seq, int64_t plan_revision,
      const std::vector<std::string>& run_uids, int32_t part = 0,
      int32_t parts_left = 0) {
    v1::ReportShardsRequest request;
    request.set_server_id(server_id);
    request.set_report_seq(report_seq);
    request.set_plan_revision(plan_revision);
    request.set_part(part);
    request.set_parts_left(parts_left);
    for (const std::string& uid : run_uids) {
      request.add_shards()->set_run_uid(uid);
    }
    return request;
  }

  DeletedRuns runs_;
};

TEST_F(DeletedRunsTest, TellsOnlyTheServersThatHaveFiles) {
  Delete("one", "u1", {"a", "b"});
  Delete("two", "u2", {"b"});
  EXPECT_THAT(Named("a"), ElementsAre("u1"));
  EXPECT_THAT(Named("b"), ElementsAre("u1", "u2"));
  EXPECT_THAT(Named("c"), IsEmpty());
  EXPECT_EQ(runs_.waiting_count(), 3);
  EXPECT_THAT(runs_.ServerIds(), ElementsAre("a", "b"));
  EXPECT_TRUE(runs_.IsWaiting("b", "u2"));
  EXPECT_FALSE(runs_.IsWaiting("a", "u2"));
  EXPECT_TRUE(runs_.IsIdWaiting("a", "one"));
  EXPECT_FALSE(runs_.IsIdWaiting("a", "two"));
  EXPECT_FALSE(runs_.IsIdWaiting("c", "one"));
  Forget("u1", "a");
  EXPECT_FALSE(runs_.IsIdWaiting("a", "one"));
}

TEST_F(DeletedRunsTest, AReportOfChangesNamesItsRunToo) {
  Delete("one", "u1", {"a"});
  runs_.NotePlans(5);
  v1::ReportShardsRequest report = Report("a", 1, 5, {});
  report.add_changes()->set_run_uid("u1");
  EXPECT_THAT(runs_.TakeReport(report), IsEmpty());
  EXPECT_THAT(runs_.TakeReport(Report("a", 2, 5, {})), ElementsAre("u1"));
}

TEST_F(DeletedRunsTest, KeepsNothingOfARunThatNoServerHas) {
  Delete("one", "u1", {});
  EXPECT_EQ(runs_.Find("one", ""), nullptr);
  EXPECT_EQ(runs_.waiting_count(), 0);
  EXPECT_THAT(runs_.ToSnapshot(), IsEmpty());
}

TEST_F(DeletedRunsTest, ForgetsARunOnceItsLastServerHasLetGo) {
  Delete("one", "u1", {"a", "b"});
  Forget("u1", "a");
  Forget("u1", "a");       // A repeat.
  Forget("unknown", "b");  // And what never was.
  Forget("u1", "c");
  EXPECT_THAT(Named("a"), IsEmpty());
  EXPECT_THAT(Named("b"), ElementsAre("u1"));
  ASSERT_NE(runs_.Find("one", "u1"), nullptr);
  EXPECT_THAT(runs_.Find("one", "u1")->server_ids(), ElementsAre("b"));
  Forget("u1", "b");
  EXPECT_EQ(runs_.Find("one", "u1"), nullptr);
  EXPECT_EQ(runs_.waiting_count(), 0);
}

TEST_F(DeletedRunsTest, FindsTheNewestOfSeveralRunsWithOneId) {
  Delete("one", "u1", {"a"});
  Delete("one", "u2", {"a"});
  EXPECT_EQ(runs_.Find("one", "")->run_uid(), "u2");
  EXPECT_EQ(runs_.Find("one", "u1")->run_uid(), "u1");
  EXPECT_EQ(runs_.Find("one", "u3"), nullptr);
}

TEST_F(DeletedRunsTest, WaitsForAReportOfAPlanThatNamesTheRun) {
  Delete("one", "u1", {"a"});
  // No plan was made yet, so the server cannot know.
  EXPECT_THAT(runs_.TakeReport(Report("a", 1, 100, {})), IsEmpty());
  runs_.NotePlans(7);
  EXPECT_THAT(runs_.TakeReport(Report("a", 2, 6, {})), IsEmpty());
  // It knows, and has not deleted the files yet.
  EXPECT_THAT(runs_.TakeReport(Report("a", 3, 7, {"other", "u1"})), IsEmpty());
  EXPECT_THAT(runs_.TakeReport(Report("a", 4, 7, {"other"})),
              ElementsAre("u1"));
}

TEST_F(DeletedRunsTest, FilesWithoutAUidMayBeOfTheDeletedRun) {
  Delete("one", "u1", {"a"});
  Delete("two", "u2", {"a"});
  runs_.NotePlans(1);
  v1::ReportShardsRequest report = Report("a", 1, 1, {""});
  report.mutable_shards(0)->set_run_id("one");
  EXPECT_THAT(runs_.TakeReport(report), ElementsAre("u2"));
}

TEST_F(DeletedRunsTest, NeedsAllRequestsOfAReport) {
  Delete("one", "u1", {"a"});
  runs_.NotePlans(1);
  // The last request alone, as after a restart of the coordinator.
  EXPECT_THAT(runs_.TakeReport(Report("a", 1, 1, {}, 1, 0)), IsEmpty());
  // The middle one is missing.
  EXPECT_THAT(runs_.TakeReport(Report("a", 2, 1, {}, 0, 2)), IsEmpty());
  EXPECT_THAT(runs_.TakeReport(Report("a", 2, 1, {}, 2, 0)), IsEmpty());
  // Parts of two reports.
  EXPECT_THAT(runs_.TakeReport(Report("a", 3, 1, {}, 0, 1)), IsEmpty());
  EXPECT_THAT(runs_.TakeReport(Report("a", 4, 1, {}, 1, 0)), IsEmpty());
  // Parts of two lives.
  EXPECT_THAT(runs_.TakeReport(Report("a", 5, 1, {}, 0, 1)), IsEmpty());
  runs_.Restart("a");
  EXPECT_THAT(runs_.TakeReport(Report("a", 5, 1, {}, 1, 0)), IsEmpty());
  // The first request names it.
  EXPECT_THAT(runs_.TakeReport(Report("a", 6, 1, {"u1"}, 0, 1)), IsEmpty());
  EXPECT_THAT(runs_.TakeReport(Report("a", 6, 1, {}, 1, 0)), IsEmpty());
  EXPECT_THAT(runs_.TakeReport(Report("a", 7, 1, {}, 0, 1)), IsEmpty());
  EXPECT_THAT(runs_.TakeReport(Report("a", 7, 1, {}, 1, 0)),
              ElementsAre("u1"));
}

TEST_F(DeletedRunsTest, APlanNamesTheFirstOnesAndTheNextPlanTheNext) {
  const int count = static_cast<int>(DeletedRuns::kNamedMax) + 10;
  for (int i = 0; i < count; ++i) {
    Delete("one", absl::StrCat("u", i), {"a"});
  }
  EXPECT_EQ(Named("a").size(), DeletedRuns::kNamedMax);
  EXPECT_EQ(Named("a").front(), "u0");
  runs_.NotePlans(1);
  const std::vector<std::string> gone =
      runs_.TakeReport(Report("a", 1, 1, {"u3"}));
  // Those that no plan named may still be there.
  EXPECT_EQ(gone.size(), DeletedRuns::kNamedMax - 1);
  for (const std::string& uid : gone) Forget(uid, "a");
  EXPECT_EQ(Named("a").size(), 11u);
  EXPECT_EQ(Named("a").front(), "u3");
  EXPECT_THAT(runs_.TakeReport(Report("a", 2, 1, {"u3"})), IsEmpty());
  runs_.NotePlans(2);
  EXPECT_EQ(runs_.TakeReport(Report("a", 3, 2, {"u3"})).size(), 10u);
}

TEST_F(DeletedRunsTest, ASnapshotHoldsWhoWaitsInTheOrderOfDeletion) {
  Delete("b", "u1", {"x", "y"});
  Delete("a", "u2", {"y"});
  Forget("u1", "x");
  DeletedRuns restored;
  for (const storage::v1::RunDeleted& deleted : runs_.ToSnapshot()) {
    restored.Add(deleted);
  }
  EXPECT_EQ(restored.waiting_count(), 2);
  v1::ServerPlan plan;
  restored.AddToPlan("y", plan);
  ASSERT_EQ(plan.deleted_runs_size(), 2);
  EXPECT_EQ(plan.deleted_runs(0).run_id(), "b");
  EXPECT_EQ(plan.deleted_runs(1).run_id(), "a");
  // Only a plan of this life counts.
  EXPECT_THAT(restored.TakeReport(Report("y", 1, 1, {})), IsEmpty());
  restored.NotePlans(1);
  EXPECT_THAT(restored.TakeReport(Report("y", 2, 1, {})),
              ElementsAre("u1", "u2"));
}

}  // namespace
}  // namespace atl::coordinator
