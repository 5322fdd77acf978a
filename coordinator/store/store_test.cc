// The contract of both stores, then that of the store on disk.

#include "coordinator/store/store.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/store/rocksdb_store.h"
#include "coordinator/store/testing/memory_store.h"
#include "coordinator/store/testing/open_or_create.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/db.h"

namespace atl::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string NewDirectory() {
  std::string pattern = testing::TempDir() + "/store_XXXXXX";
  return mkdtemp(pattern.data());
}

Batch Records(const std::string& run_id, int64_t begin, int64_t end) {
  Batch batch;
  for (int64_t revision = begin; revision < end; ++revision) {
    storage::v1::Record record;
    record.set_revision(revision);
    record.mutable_run_state_set()->set_reason(run_id +
                                               std::to_string(revision));
    batch.entries.push_back({run_id, record});
  }
  return batch;
}

Batch All(const std::vector<Batch>& parts) {
  Batch all;
  for (const Batch& part : parts) {
    all.entries.insert(all.entries.end(), part.entries.begin(),
                       part.entries.end());
    all.history.insert(all.history.end(), part.history.begin(),
                       part.history.end());
    all.snapshots.insert(all.snapshots.end(), part.snapshots.begin(),
                         part.snapshots.end());
    all.deleted_runs.insert(all.deleted_runs.end(), part.deleted_runs.begin(),
                            part.deleted_runs.end());
    all.trims.insert(all.trims.end(), part.trims.begin(), part.trims.end());
  }
  return all;
}

// A snapshot of record `revision` that deletes those up to `compacted`.
Batch MakeSnapshot(const std::string& run_id, int64_t revision,
                   int64_t compacted) {
  Batch batch;
  LogSnapshot& taken = batch.snapshots.emplace_back();
  taken.run_id = run_id;
  taken.snapshot.set_revision(revision);
  taken.snapshot.set_compacted_revision(compacted);
  taken.snapshot.mutable_run()->set_commit_seq(revision * 10);
  return batch;
}

Batch Rows(const std::string& run_id, HistoryTable table,
           const std::vector<int64_t>& numbers) {
  Batch batch;
  for (int64_t number : numbers) {
    batch.history.push_back(
        {run_id, table, number, run_id + std::to_string(number)});
  }
  return batch;
}

std::vector<int64_t> Numbers(const Store& store, const std::string& run_id,
                             HistoryTable table, int64_t begin, int64_t end,
                             int64_t bytes_max = 1 << 20) {
  const auto rows = store.ReadHistory(run_id, table, begin, end, bytes_max);
  EXPECT_TRUE(rows.ok()) << rows.status();
  std::vector<int64_t> numbers;
  for (const HistoryRow& row : *rows) {
    EXPECT_EQ(row.run_id, run_id);
    EXPECT_EQ(row.table, table);
    EXPECT_EQ(row.value, run_id + std::to_string(row.number));
    numbers.push_back(row.number);
  }
  return numbers;
}

int64_t LastRevision(const Store& store, const std::string& run_id) {
  return static_cast<int64_t>(store.Scan(run_id, 0, 1 << 20)->size());
}

std::vector<int64_t> Revisions(const Store& store, const std::string& run_id,
                               int64_t after, int64_t count) {
  const auto records = store.Scan(run_id, after, count);
  EXPECT_TRUE(records.ok()) << records.status();
  std::vector<int64_t> revisions;
  for (const storage::v1::Record& record : *records) {
    EXPECT_EQ(record.run_state_set().reason(),
              run_id + std::to_string(record.revision()));
    revisions.push_back(record.revision());
  }
  return revisions;
}

std::unique_ptr<rocksdb::DB> OpenRaw(const std::string& directory) {
  rocksdb::DB* opened = nullptr;
  rocksdb::Options options;
  options.create_if_missing = true;
  const rocksdb::Status status = rocksdb::DB::Open(options, directory, &opened);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return std::unique_ptr<rocksdb::DB>(opened);
}

class StoreTest : public testing::TestWithParam<bool> {
 protected:
  StoreTest() {
    if (GetParam()) {
      store_ = std::make_unique<MemoryLogStore>();
    } else {
      store_ = *OpenOrCreate(NewDirectory());
    }
  }
  std::unique_ptr<Store> store_;
};

TEST_P(StoreTest, KeepsLogsApartAndInOrder) {
  ASSERT_TRUE(store_
                  ->Append(All({Records("", 1, 3), Records("a", 1, 300),
                                Records("a-b", 1, 2)}))
                  .ok());
  ASSERT_TRUE(store_->Append(All({Records("a", 300, 302)})).ok());
  EXPECT_THAT(*store_->ListLogs(), ElementsAre("", "a", "a-b"));
  EXPECT_THAT(Revisions(*store_, "", 0, 10), ElementsAre(1, 2));
  EXPECT_THAT(Revisions(*store_, "a", 298, 10), ElementsAre(299, 300, 301));
  EXPECT_THAT(Revisions(*store_, "a", 0, 2), ElementsAre(1, 2));
  EXPECT_THAT(Revisions(*store_, "a", 301, 2), ElementsAre());
  EXPECT_THAT(Revisions(*store_, "none", 0, 2), ElementsAre());
  EXPECT_EQ(LastRevision(*store_, "a"), 301);
  EXPECT_EQ(LastRevision(*store_, "none"), 0);
}

TEST_P(StoreTest, RefusesAGapAndAppendsNothingOfTheBatch) {
  ASSERT_TRUE(store_->Append(All({Records("a", 1, 3)})).ok());
  for (const Batch& bad :
       {Records("a", 5, 6), Records("a", 2, 3), Records("b", 2, 3)}) {
    EXPECT_EQ(store_->Append(All({Records("a", 3, 4), bad})).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(LastRevision(*store_, "a"), 2);
  EXPECT_THAT(*store_->ListLogs(), ElementsAre("a"));
}

TEST_P(StoreTest, TakesTwoAppendsToOneLogInOneBatch) {
  ASSERT_TRUE(
      store_->Append(All({Records("a", 1, 3), Records("a", 3, 4)})).ok());
  EXPECT_EQ(LastRevision(*store_, "a"), 3);
}

TEST_P(StoreTest, RefusesARevisionThatIsThereAlready) {
  ASSERT_TRUE(store_->Append(Records("a", 1, 3)).ok());
  EXPECT_EQ(store_->Append(Records("a", 2, 3)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(store_->Append(Records("a", 3, 4)).ok());
}

TEST_P(StoreTest, DeletesWithASnapshotWhatItSays) {
  ASSERT_TRUE(store_
                  ->Append(All({Records("a", 1, 10), Records("b", 1, 4),
                                Records("a-b", 1, 4)}))
                  .ok());
  EXPECT_FALSE(store_->ReadSnapshot("a")->has_value());
  // With records of the same batch, and without deletions.
  ASSERT_TRUE(
      store_->Append(All({Records("a", 10, 13), MakeSnapshot("a", 12, 0)}))
          .ok());
  EXPECT_THAT(Revisions(*store_, "a", 0, 3), ElementsAre(1, 2, 3));
  ASSERT_TRUE(
      store_->Append(All({Records("a", 13, 15), MakeSnapshot("a", 14, 12)}))
          .ok());
  ASSERT_TRUE(store_->Append(Records("a", 15, 16)).ok());

  const auto snapshot = store_->ReadSnapshot("a");
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_EQ((*snapshot)->revision(), 14);
  EXPECT_EQ((*snapshot)->run().commit_seq(), 140);
  EXPECT_THAT(Revisions(*store_, "a", 0, 10), ElementsAre(13, 14, 15));
  EXPECT_THAT(Revisions(*store_, "a", 12, 10), ElementsAre(13, 14, 15));
  EXPECT_THAT(Revisions(*store_, "a", 14, 10), ElementsAre(15));
  for (const int64_t gone : {1, 11}) {
    EXPECT_EQ(store_->Scan("a", gone, 10).status().code(),
              absl::StatusCode::kOutOfRange);
  }
  EXPECT_THAT(Revisions(*store_, "b", 0, 10), ElementsAre(1, 2, 3));
  EXPECT_THAT(Revisions(*store_, "a-b", 0, 10), ElementsAre(1, 2, 3));
  EXPECT_FALSE(store_->ReadSnapshot("b")->has_value());
  EXPECT_THAT(*store_->ListLogs(), ElementsAre("a", "a-b", "b"));
}

TEST_P(StoreTest, RefusesASnapshotOfAnotherPlaceThanTheEnd) {
  ASSERT_TRUE(store_->Append(Records("a", 1, 10)).ok());
  for (const Batch& bad :
       {MakeSnapshot("a", 8, 0), MakeSnapshot("a", 10, 0),
        MakeSnapshot("a", 9, 9),
        All({Records("a", 10, 11), MakeSnapshot("a", 9, 0)})}) {
    EXPECT_EQ(store_->Append(All({Records("b", 1, 2), bad})).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(LastRevision(*store_, "a"), 9);
  EXPECT_THAT(*store_->ListLogs(), ElementsAre("a"));
}

TEST_P(StoreTest, ReadsHistoryByRange) {
  using enum HistoryTable;
  ASSERT_TRUE(store_
                  ->Append(All({Rows("a", kRounds, {1, 2, 3, 300, 301}),
                                Rows("a", kEvaluations, {0, 2}),
                                Rows("a-b", kRounds, {1, 2})}))
                  .ok());
  ASSERT_TRUE(store_->Append(Rows("a", kRounds, {302})).ok());
  EXPECT_THAT(Numbers(*store_, "a", kRounds, 1, 1000),
              ElementsAre(1, 2, 3, 300, 301, 302));
  EXPECT_THAT(Numbers(*store_, "a", kRounds, 2, 301), ElementsAre(2, 3, 300));
  EXPECT_THAT(Numbers(*store_, "a", kRounds, 4, 300), ElementsAre());
  EXPECT_THAT(Numbers(*store_, "a", kEvaluations, 0, 9), ElementsAre(0, 2));
  EXPECT_THAT(Numbers(*store_, "none", kRounds, 0, 9), ElementsAre());
  // Each row has two bytes ("a1", "a2"). A page has at least one row.
  EXPECT_THAT(Numbers(*store_, "a", kRounds, 1, 9, 1), ElementsAre(1));
  EXPECT_THAT(Numbers(*store_, "a", kRounds, 1, 9, 2), ElementsAre(1));
  EXPECT_THAT(Numbers(*store_, "a", kRounds, 1, 9, 3), ElementsAre(1, 2));
}

Batch Deletion(const std::vector<std::string>& run_ids) {
  Batch batch;
  batch.deleted_runs = run_ids;
  return batch;
}

Batch Trim(const std::string& run_id, HistoryTable table, int64_t end) {
  Batch batch;
  batch.trims.push_back({run_id, table, end});
  return batch;
}

TEST_P(StoreTest, DeletesEveryRowOfARunAndNoOther) {
  using enum HistoryTable;
  // More rows than are deleted one by one; ids that sort next to "a".
  std::vector<int64_t> numbers(100);
  std::iota(numbers.begin(), numbers.end(), 1);
  for (const std::string id : {"a", "a-b", "a0", "b"}) {
    ASSERT_TRUE(store_
                    ->Append(All({Records(id, 1, 200), MakeSnapshot(id, 199, 9),
                                  Rows(id, kRounds, numbers),
                                  Rows(id, kEvaluations, {0, 2})}))
                    .ok());
  }
  ASSERT_TRUE(
      store_->Append(All({Deletion({"a", "b", "none"}), Records("", 1, 2)}))
          .ok());
  EXPECT_THAT(*store_->ListLogs(), ElementsAre("", "a-b", "a0"));
  for (const std::string id : {"a", "b"}) {
    EXPECT_THAT(Revisions(*store_, id, 0, 9), ElementsAre());
    EXPECT_FALSE(store_->ReadSnapshot(id)->has_value());
    EXPECT_THAT(Numbers(*store_, id, kRounds, 0, 999), ElementsAre());
    EXPECT_THAT(Numbers(*store_, id, kEvaluations, 0, 999), ElementsAre());
    // A new run of the same id starts again.
    EXPECT_EQ(store_->Append(Records(id, 200, 201)).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(store_->Append(Records(id, 1, 2)).ok());
  }
  for (const std::string id : {"a-b", "a0"}) {
    EXPECT_EQ(Revisions(*store_, id, 0, 999).size(), 190u);
    EXPECT_TRUE(store_->ReadSnapshot(id)->has_value());
    EXPECT_EQ(Numbers(*store_, id, kRounds, 0, 999).size(), 100u);
    EXPECT_THAT(Numbers(*store_, id, kEvaluations, 0, 9), ElementsAre(0, 2));
  }
}

TEST_P(StoreTest, DeletesARunBeforeItCreatesAnotherOfTheSameId) {
  using enum HistoryTable;
  ASSERT_TRUE(store_
                  ->Append(All({Records("a", 1, 90), MakeSnapshot("a", 89, 0),
                                Rows("a", kRounds, {1, 2})}))
                  .ok());
  EXPECT_EQ(store_->Append(All({Deletion({"a"}), Records("a", 90, 91)})).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->Append(Deletion({""})).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(LastRevision(*store_, "a"), 89);
  ASSERT_TRUE(store_
                  ->Append(All({Deletion({"a"}), Records("a", 1, 3),
                                Rows("a", kRounds, {2})}))
                  .ok());
  EXPECT_THAT(Revisions(*store_, "a", 0, 99), ElementsAre(1, 2));
  EXPECT_FALSE(store_->ReadSnapshot("a")->has_value());
  EXPECT_THAT(Numbers(*store_, "a", kRounds, 0, 9), ElementsAre(2));
  EXPECT_TRUE(store_->Append(Records("a", 3, 4)).ok());
}

TEST_P(StoreTest, TrimsATableOfOneRun) {
  using enum HistoryTable;
  std::vector<int64_t> numbers(100);
  std::iota(numbers.begin(), numbers.end(), 1);
  ASSERT_TRUE(store_
                  ->Append(All({Rows("a", kRounds, numbers),
                                Rows("a", kEvaluations, {0, 5}),
                                Rows("b", kRounds, {1, 5}),
                                Rows("", kAudit, {2, 4}),
                                Rows("", kEnrolments, {3, 5})}))
                  .ok());
  ASSERT_TRUE(store_
                  ->Append(All({Trim("a", kRounds, 3),
                                Trim("", kEnrolments, 5)}))
                  .ok());
  EXPECT_THAT(Numbers(*store_, "", kAudit, 0, 9), ElementsAre(2, 4));
  EXPECT_THAT(Numbers(*store_, "", kEnrolments, 0, 9), ElementsAre(5));
  EXPECT_THAT(Numbers(*store_, "a", kRounds, 0, 6), ElementsAre(3, 4, 5));
  ASSERT_TRUE(
      store_
          ->Append(All({Trim("a", kRounds, 99), Trim("none", kRounds, 9),
                        Rows("a", kRounds, {7, 101})}))
          .ok());
  EXPECT_THAT(Numbers(*store_, "a", kRounds, 0, 999),
              ElementsAre(99, 100, 101));
  EXPECT_THAT(Numbers(*store_, "a", kEvaluations, 0, 9), ElementsAre(0, 5));
  EXPECT_THAT(Numbers(*store_, "b", kRounds, 0, 9), ElementsAre(1, 5));
}

TEST_P(StoreTest, CountsTheBatchesThatItHolds) {
  EXPECT_EQ(store_->index(), 0);
  EXPECT_TRUE(store_->Append(Batch()).ok());
  EXPECT_EQ(store_->index(), 0);
  EXPECT_TRUE(store_->Append(Records("a", 1, 9)).ok());
  EXPECT_EQ(store_->index(), 1);
  EXPECT_FALSE(store_->Append(Records("a", 1, 9)).ok());
  EXPECT_EQ(store_->index(), 1);
  EXPECT_TRUE(store_->Append(Deletion({"a"})).ok());
  EXPECT_TRUE(store_->Append(Trim("a", HistoryTable::kRounds, 9)).ok());
  EXPECT_EQ(store_->index(), 3);
  EXPECT_TRUE(store_->damage().ok());
}

INSTANTIATE_TEST_SUITE_P(MemoryAndRocksDb, StoreTest, testing::Bool());

TEST(RocksDbStoreTest, FindsEverythingAgainWhenItIsReopened) {
  const std::string directory = NewDirectory();
  {
    auto store = OpenOrCreate(directory);
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE((*store)
                    ->Append(All({Records("", 1, 2), Records("a", 1, 258),
                                  Records("b", 1, 2)}))
                    .ok());
  }
  auto store = OpenOrCreate(directory);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ(LastRevision(**store, ""), 1);
  EXPECT_EQ(LastRevision(**store, "a"), 257);
  EXPECT_EQ(LastRevision(**store, "b"), 1);
  EXPECT_TRUE((*store)->Append(All({Records("a", 258, 259)})).ok());
  EXPECT_THAT(*(*store)->ListLogs(), ElementsAre("", "a", "b"));
}

TEST(RocksDbStoreTest, FindsSnapshotsAndHistoryAgainWhenItIsReopened) {
  const std::string directory = NewDirectory();
  ASSERT_TRUE((*OpenOrCreate(directory))
                  ->Append(All({Records("a", 1, 9), MakeSnapshot("a", 8, 5),
                                Rows("a", HistoryTable::kRounds, {1, 2})}))
                  .ok());
  auto store = OpenOrCreate(directory);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((**(*store)->ReadSnapshot("a")).run().commit_seq(), 80);
  EXPECT_THAT(Revisions(**store, "a", 0, 9), ElementsAre(6, 7, 8));
  EXPECT_EQ((*store)->Scan("a", 4, 9).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_THAT(Numbers(**store, "a", HistoryTable::kRounds, 0, 9),
              ElementsAre(1, 2));
  EXPECT_TRUE((*store)->Append(Records("a", 9, 10)).ok());
}

TEST(RocksDbStoreTest, SaysWhatIsDamagedBesideRecords) {
  const std::string directory = NewDirectory();
  ASSERT_TRUE((*OpenOrCreate(directory))
                  ->Append(All({Records("a", 1, 4), MakeSnapshot("a", 3, 1),
                                Rows("a", HistoryTable::kRounds, {1, 2})}))
                  .ok());
  for (const std::string key : {"snapshot/a", "round/a/0000000000000002"}) {
    const auto db = OpenRaw(directory);
    std::string value;
    ASSERT_TRUE(db->Get(rocksdb::ReadOptions(), key, &value).ok());
    value[0] ^= 1;
    ASSERT_TRUE(db->Put(rocksdb::WriteOptions(), key, value).ok());
  }
  const auto store = OpenOrCreate(directory);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->ReadSnapshot("a").status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_THAT(Numbers(**store, "a", HistoryTable::kRounds, 1, 2),
              ElementsAre(1));
  EXPECT_EQ((*store)
                ->ReadHistory("a", HistoryTable::kRounds, 1, 3, 1 << 20)
                .status()
                .code(),
            absl::StatusCode::kDataLoss);
}

TEST(RocksDbStoreTest, IsOpenInOneProcessAtATime) {
  const std::string directory = NewDirectory();
  auto store = OpenOrCreate(directory);
  ASSERT_TRUE(store.ok());
  const auto second = OpenOrCreate(directory);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(directory));
}

TEST(MemoryLogStoreTest, PretendsDamage) {
  MemoryLogStore store;
  ASSERT_TRUE(store.Append(Records("a", 1, 3)).ok());
  store.SetDamage(absl::DataLossError("2 of 3"));
  EXPECT_EQ(store.damage(), absl::DataLossError("2 of 3"));
  EXPECT_EQ(store.Append(Records("a", 3, 4)), store.damage());
  EXPECT_THAT(Revisions(store, "a", 0, 9), ElementsAre(1, 2));
}

TEST(RocksDbStoreTest, RefusesAServersDirectory) {
  const std::string directory = NewDirectory();
  std::filesystem::create_directories(directory + "/records");
  const absl::Status status = OpenOrCreate(directory).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("--data-dir"));
  EXPECT_FALSE(std::filesystem::exists(directory + "/CURRENT"));
}

TEST(RocksDbStoreTest, SaysWhichRecordIsDamaged) {
  const std::string directory = NewDirectory();
  ASSERT_TRUE((*OpenOrCreate(directory))->Append(Records("a", 1, 4)).ok());
  {
    const auto db = OpenRaw(directory);
    std::string value;
    const std::string key = "log/a/0000000000000002";
    ASSERT_TRUE(db->Get(rocksdb::ReadOptions(), key, &value).ok());
    value[value.size() / 2] ^= 1;
    ASSERT_TRUE(db->Put(rocksdb::WriteOptions(), key, value).ok());
  }
  const auto store = OpenOrCreate(directory);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE((*store)->Scan("a", 0, 1).ok());
  const absl::Status damaged = (*store)->Scan("a", 0, 3).status();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(damaged.message()), HasSubstr("record 2"));
}

TEST(RocksDbStoreTest, RefusesANewerFormat) {
  const std::string directory = NewDirectory();
  {
    ASSERT_TRUE(
        OpenRaw(directory)->Put(rocksdb::WriteOptions(), "format", "4").ok());
  }
  const auto store = OpenOrCreate(directory);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(store.status().message()),
              AllOf(HasSubstr("format 4"), HasSubstr("program's 3")));
}

TEST(RocksDbStoreTest, SaysThatADamagedStoreIsDamaged) {
  const std::string directory = NewDirectory();
  {
    ASSERT_TRUE(
        (*OpenOrCreate(directory))->Append(All({Records("a", 1, 100)})).ok());
  }
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().filename().string().rfind("MANIFEST", 0) == 0) {
      std::ofstream(entry.path(), std::ios::trunc) << "not a manifest";
    }
  }
  const auto store = OpenOrCreate(directory);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(directory));
}

}  // namespace
}  // namespace atl::coordinator
