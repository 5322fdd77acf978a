#include "coordinator/core/report_joiner.h"

#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

// A part of shard 3 that stores the seqs [begin, end).
v1::ShardReport Part(int32_t part, int32_t parts_left, int begin, int end) {
  v1::ShardReport report;
  report.set_run_id("run");
  report.set_run_epoch(1);
  report.set_shard(3);
  report.set_part(part);
  report.set_parts_left(parts_left);
  if (part == 0) report.set_persisted_commit_seq(9);
  for (int seq = begin; seq < end; ++seq) {
    report.add_stored()->mutable_info()->mutable_key()->set_seq(seq);
  }
  return report;
}

TEST(ReportJoinerTest, AReportInOnePartIsItself) {
  ReportJoiner joiner;
  const v1::ShardReport report = Part(0, 0, 0, 4);
  const std::optional<v1::ShardReport> joined = joiner.Add(7, report);
  ASSERT_TRUE(joined.has_value());
  EXPECT_EQ(joined->SerializeAsString(), report.SerializeAsString());
}

TEST(ReportJoinerTest, PartsMakeTheReport) {
  ReportJoiner joiner;
  for (int report_seq = 1; report_seq <= 2; ++report_seq) {
    EXPECT_FALSE(joiner.Add(report_seq, Part(0, 2, 0, 4)).has_value());
    EXPECT_FALSE(joiner.Add(report_seq, Part(1, 1, 4, 6)).has_value());
    const std::optional<v1::ShardReport> report =
        joiner.Add(report_seq, Part(2, 0, 6, 7));
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->SerializeAsString(),
              Part(0, 0, 0, 7).SerializeAsString());
  }
}

TEST(ReportJoinerTest, PartsOfAReportOfChangesMakeIt) {
  ReportJoiner joiner;
  v1::ShardReport first = Part(0, 1, 0, 2);
  first.set_base_report_seq(6);
  first.add_gone()->set_seq(7);
  v1::ShardReport last = Part(1, 0, 2, 3);
  last.add_gone()->set_seq(8);
  EXPECT_FALSE(joiner.Add(7, first).has_value());
  const std::optional<v1::ShardReport> report = joiner.Add(7, last);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->base_report_seq(), 6);
  EXPECT_EQ(report->stored_size(), 3);
  ASSERT_EQ(report->gone_size(), 2);
  EXPECT_EQ(report->gone(0).seq(), 7);
  EXPECT_EQ(report->gone(1).seq(), 8);
}

TEST(ReportJoinerTest, PartsThatDoNotFollowMakeNothing) {
  v1::ShardReport other_run = Part(1, 0, 4, 6);
  other_run.set_run_id("other");
  v1::ShardReport other_shard = Part(1, 0, 4, 6);
  other_shard.set_shard(4);
  const struct {
    int64_t report_seq;
    v1::ShardReport part;
  } others[] = {{2, Part(1, 0, 4, 6)},
                {1, Part(2, 0, 4, 6)},
                {1, Part(-1, 0, 4, 6)},
                {1, other_run},
                {1, other_shard}};
  for (const auto& other : others) {
    ReportJoiner joiner;
    EXPECT_FALSE(joiner.Add(1, Part(1, 0, 0, 4)).has_value());
    EXPECT_FALSE(joiner.Add(1, Part(0, 1, 0, 4)).has_value());
    EXPECT_FALSE(joiner.Add(other.report_seq, other.part).has_value());
    // The rest of the dropped report is ignored too.
    EXPECT_FALSE(joiner.Add(1, Part(1, 0, 4, 6)).has_value());
    EXPECT_FALSE(joiner.Add(2, Part(0, 1, 0, 4)).has_value());
    EXPECT_TRUE(joiner.Add(2, Part(1, 0, 4, 6)).has_value());
  }
}

// Few bytes on the wire may take much memory.
TEST(ReportJoinerTest, PartsWithoutEndAreGivenUpByTheMemoryThatTheyTake) {
  v1::ShardReport large = Part(0, 1, 0, 0);
  large.add_refused()->set_reason(std::string(4 << 20, 'x'));
  v1::ShardReport many = Part(0, 1, 0, 0);
  for (int i = 0; i < 200000; ++i) many.add_refused();
  EXPECT_LT(many.ByteSizeLong(), 1 << 20);
  for (v1::ShardReport& part : {std::ref(large), std::ref(many)}) {
    ReportJoiner joiner;
    // The joiner gets copies.
    const size_t part_bytes = v1::ShardReport(part).SpaceUsedLong();
    const int count_max = static_cast<int>(kReportBytesMax / part_bytes);
    EXPECT_LE(count_max, 64);
    for (int i = 0; i < count_max; ++i) {
      part.set_part(i);
      EXPECT_FALSE(joiner.Add(1, part).has_value());
    }
    EXPECT_GE(joiner.MemoryBytes(), (count_max - 1) * part_bytes);
    part.set_part(count_max);
    part.set_parts_left(0);
    EXPECT_FALSE(joiner.Add(1, part).has_value());
    EXPECT_EQ(joiner.MemoryBytes(), v1::ShardReport().SpaceUsedLong());
  }
}

// The largest report of a server; plan_parts_test sends the same over the wire.
TEST(ReportJoinerTest, TheLargestReportIsTaken) {
  v1::ShardReport report = Part(0, 1, 0, 0);
  constexpr int kUndecidedMax = 4 * 32768;
  for (int i = 0; i < kUndecidedMax; ++i) {
    v1::RefusedContribution& refused = *report.add_refused();
    refused.mutable_key()->set_seq(i);
    refused.set_reason(std::string(256, 'x'));
  }
  std::cout << "memory " << report.SpaceUsedLong() << std::endl;
  EXPECT_LT(report.SpaceUsedLong(), kReportBytesMax / 2);
  report.clear_refused();
  for (int i = 0; i < kUndecidedMax; ++i) {
    v1::ContributionInfo& info = *report.add_stored()->mutable_info();
    info.mutable_key()->set_seq(i);
    info.mutable_digest()->set_low(i);
  }
  std::cout << "memory " << report.SpaceUsedLong() << std::endl;
  EXPECT_LT(report.SpaceUsedLong(), kReportBytesMax / 2);
}

// However large it was, and whether dropped or complete.
TEST(ReportJoinerTest, NothingStaysOfAReportThatIsTaken) {
  ReportJoiner joiner;
  EXPECT_FALSE(joiner.Add(1, Part(0, 1, 0, 1000)).has_value());
  EXPECT_GT(joiner.MemoryBytes(), 100 * 1000);
  EXPECT_TRUE(joiner.Add(1, Part(1, 0, 1000, 1001)).has_value());
  EXPECT_EQ(joiner.MemoryBytes(), v1::ShardReport().SpaceUsedLong());
}

}  // namespace
}  // namespace atl::coordinator
