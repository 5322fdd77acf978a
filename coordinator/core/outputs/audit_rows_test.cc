#include "coordinator/core/outputs/audit_rows.h"

#include <cstdint>
#include <string>

#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

class AuditRowsTest : public ::testing::Test {
 protected:
  // Adds the record of an event. Notes the trims that follow.
  void Add(const std::string& action) {
    Batch batch;
    LogEntry& entry = batch.entries.emplace_back();
    entry.record.set_revision(++revision_);
    if (!action.empty()) entry.record.mutable_audit()->set_action(action);
    rows_.Apply(entry.record);
    rows_.AddTrims(batch);
    for (const HistoryTrim& trim : batch.trims) {
      EXPECT_EQ(trim.run_id, "");
      (trim.table == HistoryTable::kAudit ? operators_end_ : strangers_end_) =
          trim.end;
    }
  }

  AuditRows rows_;
  int64_t revision_ = 0;
  int64_t operators_end_ = 0;
  int64_t strangers_end_ = 0;
};

TEST_F(AuditRowsTest, StrangersRowsPushOutNoOperatorsRow) {
  Add("run.create");
  for (int64_t i = 0; i < 3 * kAuditKept; ++i) {
    Add(i % 2 == 0 ? "island.enrol" : "island.renew");
  }
  EXPECT_EQ(operators_end_, 0);
  EXPECT_GT(strangers_end_, revision_ - kAuditKept - kAuditTrimStep);
  EXPECT_LE(strangers_end_, revision_ - kAuditKept);
}

TEST_F(AuditRowsTest, KeepsTheNewestRowsOfOperators) {
  const int64_t count = kAuditKept + 4 * kAuditTrimStep;
  for (int64_t i = 0; i < count; ++i) {
    Add("token.create");
    Add("island.renew");
    Add("");
  }
  // An event of an operator is every third record.
  const int64_t kept = (revision_ - operators_end_) / 3;
  EXPECT_GE(kept, kAuditKept);
  EXPECT_LE(kept, kAuditKept + 2 * kAuditTrimStep);
}

TEST_F(AuditRowsTest, ASnapshotKeepsTheCount) {
  const int64_t steps = kAuditKept / kAuditTrimStep + 3;
  for (int64_t i = 0; i < steps * kAuditTrimStep - 1; ++i) Add("run.pause");
  storage::v1::CoordinatorSnapshot snapshot;
  rows_.AddTo(snapshot);
  rows_ = AuditRows();
  rows_.Restore(snapshot);
  const int64_t before = operators_end_;
  Add("run.pause");
  EXPECT_GT(operators_end_, before);
}

TEST_F(AuditRowsTest, AnOlderSnapshotHasNoCount) {
  rows_.Restore(storage::v1::CoordinatorSnapshot());
  Add("run.pause");
  EXPECT_EQ(operators_end_, 0);
}

}  // namespace
}  // namespace atl::coordinator
