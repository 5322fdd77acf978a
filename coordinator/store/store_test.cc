// One contract, held by both stores; then what only the one on disk can do.

#include "coordinator/store/store.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/store/memory_store.h"
#include "coordinator/store/rocksdb_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/db.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string NewDirectory() {
  std::string pattern = testing::TempDir() + "/store_XXXXXX";
  return mkdtemp(pattern.data());
}

using Batch = std::vector<LogEntry>;

Batch Records(const std::string& run_id, int64_t begin, int64_t end) {
  Batch batch;
  for (int64_t revision = begin; revision < end; ++revision) {
    storage::v1::Record record;
    record.set_revision(revision);
    record.mutable_run_state_set()->set_reason(run_id +
                                               std::to_string(revision));
    batch.push_back({run_id, record});
  }
  return batch;
}

Batch All(const std::vector<Batch>& parts) {
  Batch all;
  for (const Batch& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
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

class StoreTest : public testing::TestWithParam<bool> {
 protected:
  StoreTest() {
    if (GetParam()) {
      store_ = std::make_unique<MemoryStore>();
    } else {
      store_ = *RocksDbStore::Open(NewDirectory());
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

INSTANTIATE_TEST_SUITE_P(MemoryAndRocksDb, StoreTest, testing::Bool());

TEST(RocksDbStoreTest, FindsEverythingAgainWhenItIsReopened) {
  const std::string directory = NewDirectory();
  {
    auto store = RocksDbStore::Open(directory);
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE((*store)
                    ->Append(All({Records("", 1, 2), Records("a", 1, 258),
                                  Records("b", 1, 2)}))
                    .ok());
  }
  auto store = RocksDbStore::Open(directory);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ(LastRevision(**store, ""), 1);
  EXPECT_EQ(LastRevision(**store, "a"), 257);
  EXPECT_EQ(LastRevision(**store, "b"), 1);
  EXPECT_TRUE((*store)->Append(All({Records("a", 258, 259)})).ok());
  EXPECT_THAT(*(*store)->ListLogs(), ElementsAre("", "a", "b"));
}

TEST(RocksDbStoreTest, IsOpenInOneProcessAtATime) {
  const std::string directory = NewDirectory();
  auto store = RocksDbStore::Open(directory);
  ASSERT_TRUE(store.ok());
  const auto second = RocksDbStore::Open(directory);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(directory));
}

TEST(RocksDbStoreTest, SaysWhichRecordIsDamaged) {
  const std::string directory = NewDirectory();
  ASSERT_TRUE(
      (*RocksDbStore::Open(directory))->Append(Records("a", 1, 4)).ok());
  {
    rocksdb::DB* opened = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open(rocksdb::Options(), directory, &opened).ok());
    std::unique_ptr<rocksdb::DB> db(opened);
    std::string value;
    const std::string key = "log/a/0000000000000002";
    ASSERT_TRUE(db->Get(rocksdb::ReadOptions(), key, &value).ok());
    value[value.size() / 2] ^= 1;
    ASSERT_TRUE(db->Put(rocksdb::WriteOptions(), key, value).ok());
  }
  const auto store = RocksDbStore::Open(directory);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE((*store)->Scan("a", 0, 1).ok());
  const absl::Status damaged = (*store)->Scan("a", 0, 3).status();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(damaged.message()), HasSubstr("record 2"));
}

TEST(RocksDbStoreTest, RefusesANewerFormat) {
  const std::string directory = NewDirectory();
  {
    rocksdb::DB* opened = nullptr;
    rocksdb::Options options;
    options.create_if_missing = true;
    ASSERT_TRUE(rocksdb::DB::Open(options, directory, &opened).ok());
    std::unique_ptr<rocksdb::DB> db(opened);
    ASSERT_TRUE(db->Put(rocksdb::WriteOptions(), "format", "2").ok());
  }
  const auto store = RocksDbStore::Open(directory);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("format 2"));
}

TEST(RocksDbStoreTest, SaysThatADamagedStoreIsDamaged) {
  const std::string directory = NewDirectory();
  {
    ASSERT_TRUE((*RocksDbStore::Open(directory))
                    ->Append(All({Records("a", 1, 100)}))
                    .ok());
  }
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().filename().string().rfind("MANIFEST", 0) == 0) {
      std::ofstream(entry.path(), std::ios::trunc) << "not a manifest";
    }
  }
  const auto store = RocksDbStore::Open(directory);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(directory));
}

}  // namespace
}  // namespace atl::coordinator
