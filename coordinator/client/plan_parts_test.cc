#include "coordinator/client/plan_parts.h"

#include <algorithm>
#include <deque>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

v1::ServerPlan MakePlan(int run_count, size_t name_bytes) {
  v1::ServerPlan plan;
  plan.set_revision(7);
  plan.set_coordinator_epoch(2);
  for (int i = 0; i < run_count; ++i) {
    plan.add_runs()->set_run_id(
        absl::StrCat(i, std::string(name_bytes, 'x')));
  }
  plan.mutable_log()->set_index(12);
  plan.add_deleted_runs()->set_run_id("gone");
  return plan;
}

TEST(PlanPartsTest, EveryPartIsSmallAndTogetherTheyAreThePlan) {
  for (const int run_count : {0, 1, 9, 100}) {
    const v1::ServerPlan plan = MakePlan(run_count, 100);
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
  v1::ServerPlan plan = MakePlan(3, 10);
  plan.mutable_runs(1)->set_run_id(std::string(5000, 'y'));
  EXPECT_EQ(CutPlan(plan, 1000).size(), 3);
}

TEST(PlanPartsTest, APlanThatIsBegunAnewReplacesWhatHasCome) {
  const auto old = CutPlan(MakePlan(20, 100), 1000);
  v1::ServerPlan newer = MakePlan(1, 100);
  newer.set_revision(8);
  PlanJoiner joiner;
  EXPECT_FALSE(joiner.Add(old[0])->has_value());
  const auto joined = joiner.Add(CutPlan(newer, 1000)[0]);
  ASSERT_TRUE(joined.ok() && joined->has_value());
  EXPECT_EQ((*joined)->SerializeAsString(), newer.SerializeAsString());
}

TEST(PlanPartsTest, PartsThatDoNotFollowAreAnError) {
  const auto parts = CutPlan(MakePlan(30, 100), 1000);
  PlanJoiner joiner;
  EXPECT_FALSE(joiner.Add(parts[1]).ok());
  EXPECT_TRUE(joiner.Add(parts[0]).ok());
  EXPECT_FALSE(joiner.Add(parts[2]).ok());
  v1::WatchServerPlanResponse other = parts[1];
  other.mutable_plan()->set_revision(8);
  EXPECT_FALSE(joiner.Add(other).ok());
}

// The plan `revision` with these versions of runs; 0: as before.
v1::ServerPlan Changes(int64_t revision,
                       const std::map<std::string, int64_t>& versions) {
  v1::ServerPlan plan;
  plan.set_revision(revision);
  for (const auto& [id, version] : versions) {
    if (version == 0) {
      plan.add_unchanged_run_ids(id);
      continue;
    }
    v1::ServerRunPlan& run = *plan.add_runs();
    run.set_run_id(id);
    run.set_commit_seq(version);
  }
  return plan;
}

std::string Versions(const v1::ServerPlan& plan) {
  std::string versions;
  for (const v1::ServerRunPlan& run : plan.runs()) {
    absl::StrAppend(&versions, run.run_id(), run.commit_seq(), " ");
  }
  return versions;
}

TEST(PlanPartsTest, ARunThatHasNotChangedIsThatOfThePlanBefore) {
  PlanJoiner joiner;
  const auto joined = [&](const v1::ServerPlan& plan) {
    std::optional<v1::ServerPlan> whole;
    for (v1::WatchServerPlanResponse& part : CutPlan(plan, 10)) {
      const auto added = joiner.Add(std::move(part));
      EXPECT_TRUE(added.ok()) << added.status();
      if (added.ok()) whole = *added;
    }
    if (!whole.has_value()) return std::string("none");
    EXPECT_EQ(whole->revision(), plan.revision());
    EXPECT_EQ(whole->unchanged_run_ids_size(), 0);
    return Versions(*whole);
  };
  EXPECT_EQ(joined(Changes(1, {{"a", 1}, {"b", 1}, {"c", 1}})), "a1 b1 c1 ");
  EXPECT_EQ(joined(Changes(2, {{"a", 0}, {"b", 2}, {"c", 0}})), "a1 b2 c1 ");
  EXPECT_EQ(joined(Changes(3, {{"b", 0}, {"d", 3}})), "b2 d3 ");
  // An old plan that comes again is not what the next one refers to.
  EXPECT_EQ(joined(Changes(2, {{"a", 0}, {"b", 1}, {"c", 0}})), "none");
  EXPECT_EQ(joined(Changes(4, {{"b", 0}, {"d", 0}})), "b2 d3 ");
  const auto unknown = joiner.Add(CutPlan(Changes(5, {{"a", 0}}))[0]);
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PlanPartsTest, ASkippedPlanIsInTheNextOne) {
  v1::ServerPlan next = Changes(3, {{"a", 0}, {"b", 0}, {"c", 3}});
  MergePlans(Changes(2, {{"a", 0}, {"b", 2}, {"c", 2}, {"gone", 2}}), next);
  EXPECT_EQ(next.revision(), 3);
  EXPECT_EQ(Versions(next), "b2 c3 ");
  ASSERT_EQ(next.unchanged_run_ids_size(), 1);
  EXPECT_EQ(next.unchanged_run_ids(0), "a");
}

// A whole plan of a run with random parts; `number` is in all of them, so that no
// part of one plan is that of another.
v1::ServerRunPlan AnyRun(int64_t number, std::mt19937& random) {
  const auto pick = [&](int count) {
    return static_cast<int32_t>(random() % static_cast<unsigned>(count));
  };
  v1::ServerRunPlan run;
  run.set_run_id("a");
  run.set_commit_seq(number);
  for (int32_t slot = 0; slot < 6; ++slot) {
    if (pick(2) == 0) continue;
    v1::PlanMember& member = *run.add_members();
    member.set_slot(slot);
    member.set_island_epoch(number);
  }
  for (int32_t fragment = 0; fragment < 4; ++fragment) {
    if (pick(2) == 0) continue;
    v1::Seal& seal = *run.add_seals();
    seal.set_fragment(fragment);
    seal.set_version(number);
    seal.add_contributions()->set_token_count(number);
    if (pick(2) == 0) seal.mutable_verdict()->set_median_norm(2);
  }
  v1::Commit& commit = *run.add_commits();
  commit.set_commit_seq(number);
  commit.add_outcomes()->set_reason("r");
  if (pick(2) == 0) run.add_pins()->set_kept_bytes(number);
  if (pick(2) == 0) run.add_enrolled("e");
  return run;
}

// Changes random parts of `before` to those of `other`, and returns the change;
// `before` becomes the plan after it.
v1::ServerRunPlan AnyChange(const v1::ServerRunPlan& other,
                            std::mt19937& random, v1::ServerRunPlan& before) {
  using Plan = v1::ServerRunPlan;
  v1::ServerRunPlan change;
  change.set_run_id("a");
  change.set_is_change(true);
  change.set_commit_seq(other.commit_seq());
  Plan after = other;
  after.clear_members();
  after.clear_seals();
  after.clear_commits();
  after.clear_pins();
  const auto keeps = [&] { return random() % 2 == 0; };
  for (const v1::Seal& seal : before.seals()) {
    if (!keeps()) continue;
    *after.add_seals() = seal;
    v1::Seal& name = *change.add_seals();
    name = seal;
    name.clear_contributions();
    if (seal.has_verdict()) name.mutable_verdict()->Clear();
  }
  for (const v1::Seal& seal : other.seals()) {
    *after.add_seals() = seal;
    *change.add_seals() = seal;
  }
  for (const v1::Commit& commit : before.commits()) {
    if (!keeps()) continue;
    *after.add_commits() = commit;
    change.add_commits()->set_commit_seq(commit.commit_seq());
  }
  *after.add_commits() = other.commits(0);
  *change.add_commits() = other.commits(0);
  if (keeps()) {
    *after.mutable_pins() = before.pins();
    change.add_unchanged_fields(Plan::kPinsFieldNumber);
  } else {
    *after.mutable_pins() = other.pins();
    *change.mutable_pins() = other.pins();
  }
  *after.mutable_enrolled() = before.enrolled();
  change.add_unchanged_fields(Plan::kEnrolledFieldNumber);
  change.add_unchanged_fields(10000);  // Of a newer program.
  std::map<int32_t, v1::PlanMember> members;
  std::set<int32_t> gone;
  if (keeps()) {
    *change.mutable_members() = other.members();
  } else {
    change.add_unchanged_fields(Plan::kMembersFieldNumber);
    for (const v1::PlanMember& member : before.members()) {
      if (keeps()) {
        members[member.slot()] = member;
      } else {
        gone.insert(member.slot());
      }
    }
    for (const v1::PlanMember& member : other.members()) {
      if (keeps()) continue;
      *change.add_members() = member;
      gone.erase(member.slot());
    }
  }
  change.mutable_gone_slots()->Assign(gone.begin(), gone.end());
  for (const v1::PlanMember& member : change.members()) {
    members[member.slot()] = member;
  }
  for (const auto& [slot, member] : members) *after.add_members() = member;
  before = std::move(after);
  return change;
}

TEST(PlanPartsTest, ChangesGiveTheWholePlanHoweverManyAreSkipped) {
  std::random_device device;
  const auto seed = device();
  std::cout << "seed " << seed << std::endl;
  std::mt19937 random(seed);
  PlanJoiner joiner;
  v1::ServerRunPlan whole;
  std::optional<v1::ServerPlan> waiting;
  for (int64_t revision = 1; revision < 2000; ++revision) {
    v1::ServerPlan next;
    next.set_revision(revision);
    const v1::ServerRunPlan other = AnyRun(revision, random);
    if (revision == 1 || random() % 8 == 0) {
      whole = other;
      *next.add_runs() = whole;
    } else if (random() % 4 == 0) {
      next.add_unchanged_run_ids("a");
    } else {
      *next.add_runs() = AnyChange(other, random, whole);
    }
    if (waiting.has_value()) MergePlans(*std::move(waiting), next);
    waiting = std::move(next);
    if (random() % 2 == 0) continue;
    const auto joined = joiner.Add(CutPlan(*std::exchange(waiting, {}))[0]);
    ASSERT_TRUE(joined.ok()) << joined.status();
    ASSERT_TRUE(joined->has_value());
    ASSERT_EQ((*joined)->runs_size(), 1);
    ASSERT_EQ((*joined)->runs(0).DebugString(), whole.DebugString());
  }
}

TEST(PlanPartsTest, AChangeOfWhatIsNotThereIsAnError) {
  const auto add = [](const auto& edit) {
    PlanJoiner joiner;
    EXPECT_TRUE(joiner.Add(CutPlan(Changes(1, {{"a", 1}}))[0]).ok());
    v1::ServerPlan plan = Changes(2, {{"a", 2}});
    plan.mutable_runs(0)->set_is_change(true);
    edit(*plan.mutable_runs(0));
    return joiner.Add(CutPlan(plan)[0]).status().code();
  };
  EXPECT_EQ(add([](v1::ServerRunPlan& run) {}), absl::StatusCode::kOk);
  for (const auto& edit : {
           +[](v1::ServerRunPlan& run) { run.add_seals()->set_version(1); },
           +[](v1::ServerRunPlan& run) {
             run.add_commits()->set_commit_seq(1);
           },
           +[](v1::ServerRunPlan& run) { run.set_run_id("b"); },
       }) {
    EXPECT_EQ(add(edit), absl::StatusCode::kInvalidArgument);
  }
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
  int32_t part_count = 0;
  for (const v1::ReportShardsRequest& part : parts) {
    EXPECT_EQ(part.report_seq(), 5);
    EXPECT_EQ(part.part(), part_count++);
    EXPECT_EQ(part.parts_left(), 4 - part_count);
    EXPECT_LT(part.ByteSizeLong(), 1100);
    shard_count += part.shards_size();
  }
  EXPECT_EQ(parts.size(), 4);
  EXPECT_EQ(shard_count, 30);
}

TEST(PlanPartsTest, ReportsOfChangesHaveMessagesOfTheirOwn) {
  v1::ReportShardsRequest report;
  report.set_report_seq(5);
  v1::ShardReport& changes = *report.add_changes();
  changes.set_run_id("run");
  changes.set_base_report_seq(4);
  ASSERT_EQ(CutReport(report).size(), 1u);
  EXPECT_EQ(CutReport(report)[0].changes_size(), 1);
  report.add_shards()->set_run_id("other");
  auto parts = CutReport(report);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].shards_size() + parts[1].changes_size(), 2);
  EXPECT_EQ(parts[0].parts_left(), 1);
  // One that a message does not take has its keys in all parts.
  for (int i = 0; i < 1 << 20; ++i) changes.add_gone()->set_seq(1 + i);
  parts = CutReport(report);
  int gone_count = 0;
  for (const v1::ReportShardsRequest& part : parts) {
    EXPECT_EQ(part.report_seq(), 5);
    for (const v1::ShardReport& one : part.changes()) {
      EXPECT_EQ(one.run_id(), "run");
      gone_count += one.gone_size();
    }
  }
  EXPECT_GT(parts.size(), 4u);
  EXPECT_EQ(gone_count, 1 << 20);
}

// A coordinator without support for parts takes each for a whole report.
TEST(PlanPartsTest, AShardsReportIsCutOnlyIfAMessageDoesNotTakeIt) {
  for (const bool fits : {true, false}) {
    v1::ReportShardsRequest report;
    report.set_server_id(std::string(256, 's'));
    report.add_shards()->set_run_id("before");
    v1::ShardReport& large = *report.add_shards();
    large.set_run_id("run");
    size_t bytes = large.ByteSizeLong();
    // Adds items of 64 KiB: as many as fit, or one more.
    while (true) {
      v1::RefusedContribution refused;
      refused.set_reason(std::string(64 << 10, 'x'));
      const size_t more = refused.ByteSizeLong() + 4;
      const bool is_full = bytes + more > kWholeShardBytesMax;
      if (is_full && fits) break;
      *large.add_refused() = std::move(refused);
      bytes += more;
      if (is_full) break;
    }
    report.add_shards()->set_run_id("after");
    const v1::ShardReport whole = large;
    EXPECT_GT(whole.ByteSizeLong(), 3900 << 10);
    int count = 0;
    for (const v1::ReportShardsRequest& request : CutReport(report)) {
      EXPECT_LT(request.ByteSizeLong(), 4 << 20);
      for (const v1::ShardReport& part : request.shards()) {
        if (part.run_id() != "run") continue;
        ++count;
        if (fits) {
          EXPECT_TRUE(part.SerializeAsString() == whole.SerializeAsString());
        }
      }
    }
    EXPECT_EQ(count > 1, !fits);
  }
}

// The largest report of a server: the most undecided contributions for every
// fragment and slot, stored or refused, and statistics.
TEST(PlanPartsTest, TheReportOfAShardIsCutAndTogetherItIsTheReport) {
  v1::ReportShardsRequest report;
  report.set_report_seq(5);
  report.add_shards()->set_run_id("small");
  v1::ShardReport& large = *report.add_shards();
  large.set_run_id("run");
  large.set_run_epoch(3);
  large.set_shard(2);
  large.set_fault("it stopped");
  large.set_persisted_commit_seq(7);
  large.add_prepared()->set_version(4);
  constexpr int kUndecidedMax = 4 * 32768;
  for (int i = 0; i < kUndecidedMax; ++i) {
    v1::ContributionKey key;
    key.set_run_epoch(3);
    key.set_fragment(i / 512);
    key.set_slot(i / 4 % 128);
    key.set_seq((int64_t{1} << 53) - i % 4);
    if (i % 2 == 0) {
      v1::ContributionInfo& info = *large.add_stored()->mutable_info();
      *info.mutable_key() = key;
      info.mutable_digest()->set_high(i);
      info.mutable_digest()->set_low(i);
    } else {
      v1::RefusedContribution& refused = *large.add_refused();
      *refused.mutable_key() = key;
      refused.set_reason(std::string(256, 'x'));
    }
  }
  for (const size_t bytes : {100, 2 << 20, 200}) {
    large.add_statistics()->add_grams(std::string(bytes, 'g'));
  }
  v1::ShardReport joined;
  int32_t count = 0;
  for (const v1::ReportShardsRequest& request : CutReport(report)) {
    EXPECT_EQ(request.report_seq(), 5);
    // A control message (proto/LIMITS.md).
    EXPECT_LT(request.ByteSizeLong(), 4 << 20);
    for (const v1::ShardReport& part : request.shards()) {
      if (part.run_id() == "small") continue;
      EXPECT_EQ(part.part(), count++);
      EXPECT_EQ(part.run_epoch(), 3);
      EXPECT_EQ(part.shard(), 2);
      joined.MergeFrom(part);
      EXPECT_EQ(part.parts_left() == 0,
                joined.ByteSizeLong() >= large.ByteSizeLong());
    }
  }
  EXPECT_GT(count, 20);
  joined.clear_part();
  joined.clear_parts_left();
  EXPECT_EQ(joined.SerializeAsString(), large.SerializeAsString());
  std::cout << "report " << large.ByteSizeLong() << std::endl;
}

}  // namespace
}  // namespace atl::coordinator
