// What parts of a report make, and what no report does.

#include "coordinator/core/report_joiner.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

// Of shard 3, with the seqs [begin, end) stored.
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
  EXPECT_EQ(joiner.Add(7, report), &report);
}

TEST(ReportJoinerTest, PartsMakeTheReport) {
  ReportJoiner joiner;
  for (int report_seq = 1; report_seq <= 2; ++report_seq) {
    EXPECT_EQ(joiner.Add(report_seq, Part(0, 2, 0, 4)), nullptr);
    EXPECT_EQ(joiner.Add(report_seq, Part(1, 1, 4, 6)), nullptr);
    const v1::ShardReport* report =
        joiner.Add(report_seq, Part(2, 0, 6, 7));
    ASSERT_NE(report, nullptr);
    EXPECT_EQ(report->SerializeAsString(),
              Part(0, 0, 0, 7).SerializeAsString());
  }
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
    EXPECT_EQ(joiner.Add(1, Part(1, 0, 0, 4)), nullptr);
    EXPECT_EQ(joiner.Add(1, Part(0, 1, 0, 4)), nullptr);
    EXPECT_EQ(joiner.Add(other.report_seq, other.part), nullptr);
    // Nor does what would have followed.
    EXPECT_EQ(joiner.Add(1, Part(1, 0, 4, 6)), nullptr);
    EXPECT_EQ(joiner.Add(2, Part(0, 1, 0, 4)), nullptr);
    EXPECT_NE(joiner.Add(2, Part(1, 0, 4, 6)), nullptr);
  }
}

TEST(ReportJoinerTest, PartsWithoutEndAreGivenUp) {
  ReportJoiner joiner;
  v1::ShardReport part = Part(0, 1, 0, 0);
  part.set_hindrance(std::string(4 << 20, 'x'));
  for (int i = 0; i < 15; ++i) {
    part.set_part(i);
    EXPECT_EQ(joiner.Add(1, part), nullptr);
  }
  part.set_part(15);
  part.set_parts_left(0);
  EXPECT_EQ(joiner.Add(1, part), nullptr);
}

}  // namespace
}  // namespace atl::coordinator
