#include "coordinator/client/plan_parts.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

v1::ServerPlan PlanOf(int run_count, size_t name_bytes) {
  v1::ServerPlan plan;
  plan.set_revision(7);
  plan.set_coordinator_epoch(2);
  for (int i = 0; i < run_count; ++i) {
    plan.add_runs()->set_run_id(
        absl::StrCat(i, std::string(name_bytes, 'x')));
  }
  return plan;
}

TEST(PlanPartsTest, EveryPartIsSmallAndTogetherTheyAreThePlan) {
  for (const int run_count : {0, 1, 9, 100}) {
    const v1::ServerPlan plan = PlanOf(run_count, 100);
    const auto parts = CutPlan(plan, 1000);
    EXPECT_EQ(parts.size(), std::max(1, (run_count + 8) / 9));
    PlanJoiner joiner;
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_LT(parts[i].ByteSizeLong(), 1100);
      const auto joined = joiner.Add(parts[i]);
      ASSERT_TRUE(joined.ok()) << joined.status();
      ASSERT_EQ(joined->has_value(), i + 1 == parts.size());
      if (!joined->has_value()) continue;
      EXPECT_EQ((*joined)->SerializeAsString(), plan.SerializeAsString());
    }
  }
}

TEST(PlanPartsTest, ARunThatIsMoreThanAPartHasOneOfItsOwn) {
  v1::ServerPlan plan = PlanOf(3, 10);
  plan.mutable_runs(1)->set_run_id(std::string(5000, 'y'));
  EXPECT_EQ(CutPlan(plan, 1000).size(), 3);
}

TEST(PlanPartsTest, APlanThatIsBegunAnewReplacesWhatHasCome) {
  const auto old = CutPlan(PlanOf(20, 100), 1000);
  v1::ServerPlan newer = PlanOf(1, 100);
  newer.set_revision(8);
  PlanJoiner joiner;
  EXPECT_FALSE(joiner.Add(old[0])->has_value());
  const auto joined = joiner.Add(CutPlan(newer, 1000)[0]);
  ASSERT_TRUE(joined.ok() && joined->has_value());
  EXPECT_EQ((*joined)->SerializeAsString(), newer.SerializeAsString());
}

TEST(PlanPartsTest, PartsThatDoNotFollowAreAnError) {
  const auto parts = CutPlan(PlanOf(30, 100), 1000);
  PlanJoiner joiner;
  EXPECT_FALSE(joiner.Add(parts[1]).ok());
  EXPECT_TRUE(joiner.Add(parts[0]).ok());
  EXPECT_FALSE(joiner.Add(parts[2]).ok());
  v1::WatchServerPlanResponse other = parts[1];
  other.mutable_plan()->set_revision(8);
  EXPECT_FALSE(joiner.Add(other).ok());
}

TEST(PlanPartsTest, AReportIsCutBetweenShards) {
  v1::ReportShardsRequest report;
  report.set_server_id("s");
  report.set_report_seq(5);
  EXPECT_EQ(CutReport(report).size(), 1) << "it renews the lease";
  for (int i = 0; i < 30; ++i) {
    report.add_shards()->set_fault(std::string(100, 'x'));
  }
  const auto parts = CutReport(report, 1000);
  int shard_count = 0;
  for (const v1::ReportShardsRequest& part : parts) {
    EXPECT_EQ(part.report_seq(), 5);
    EXPECT_LT(part.ByteSizeLong(), 1100);
    shard_count += part.shards_size();
  }
  EXPECT_EQ(parts.size(), 4);
  EXPECT_EQ(shard_count, 30);
}

}  // namespace
}  // namespace atl::coordinator
