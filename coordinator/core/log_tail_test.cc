#include "coordinator/core/log_tail.h"

#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

TEST(LogTailTest, IsDueByRecordsOrByBytes) {
  const SnapshotPolicy policy = {.log_records_max = 3, .log_bytes_max = 100};
  LogTail by_records;
  by_records.Add(1);
  by_records.Add(1);
  EXPECT_FALSE(by_records.SnapshotDue(policy));
  by_records.Add(1);
  EXPECT_TRUE(by_records.SnapshotDue(policy));
  LogTail by_bytes;
  by_bytes.Add(99);
  EXPECT_FALSE(by_bytes.SnapshotDue(policy));
  by_bytes.Add(1);
  EXPECT_TRUE(by_bytes.SnapshotDue(policy));
}

TEST(LogTailTest, WritesNoMoreSnapshotBytesThanRecordBytes) {
  const SnapshotPolicy policy = {.log_records_max = 1, .log_bytes_max = 1};
  LogTail tail;
  tail.Add(10);
  tail.Cut(/*revision=*/1, /*snapshot_byte_count=*/50);
  EXPECT_EQ(tail.snapshot_revision(), 1);
  tail.Add(40);
  EXPECT_FALSE(tail.SnapshotDue(policy));
  tail.Add(10);
  EXPECT_TRUE(tail.SnapshotDue(policy));
}

}  // namespace
}  // namespace atl::coordinator
