// The contract of RecordStore, on every implementation.

#include "server/store/records/record_store.h"

#include <sys/resource.h>

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "server/store/records/rocksdb_record_store.h"
#include "server/store/testing/memory_record_store.h"

namespace atl::server {
namespace {

// `open` of a directory that an earlier store used finds its records.
struct Implementation {
  std::string name;
  std::function<std::unique_ptr<RecordStore>(const std::string&)> open;
};

class RecordStoreTest : public testing::TestWithParam<Implementation> {
 protected:
  RecordStoreTest()
      : directory_(testing::TempDir() + "/records" +
                   std::to_string(reinterpret_cast<uintptr_t>(this))),
        store_(GetParam().open(directory_)) {}

  void Put(const std::string& name, const std::string& value) {
    RecordBatch batch;
    batch.Put(name, value);
    ASSERT_TRUE(store_->Write(batch, Sync::kMachine).ok());
  }

  std::string Names(const std::string& prefix) {
    const auto records = store_->Scan(prefix);
    std::string names;
    for (const auto& record : *records) names += record.first + " ";
    return names;
  }

  const std::string directory_;
  std::unique_ptr<RecordStore> store_;
};

TEST_P(RecordStoreTest, ReturnsWhatWasPut) {
  EXPECT_TRUE(absl::IsNotFound(store_->Get("a").status()));
  Put("a", "1");
  EXPECT_EQ(*store_->Get("a"), "1");
  Put("a", std::string("\0\xff", 2));
  EXPECT_EQ(*store_->Get("a"), std::string("\0\xff", 2));
  Put("a", "");
  EXPECT_EQ(*store_->Get("a"), "");
}

TEST_P(RecordStoreTest, ScansAPrefixInTheOrderOfNames) {
  Put("b/2", "");
  Put("b/10", "");
  Put("a/9", "");
  Put("b", "");
  Put("c", "");
  Put("b0", "");
  EXPECT_EQ(Names("b/"), "b/10 b/2 ");
  EXPECT_EQ(Names("d"), "");
}

TEST_P(RecordStoreTest, ABatchIsMadeInItsOrder) {
  Put("k/1", "old");
  RecordBatch batch;
  batch.DeletePrefix("k/");
  batch.Put("k/2", "new");
  batch.Put("k/3", "gone");
  batch.Delete("k/3");
  batch.Delete("never there");
  ASSERT_TRUE(store_->Write(batch, Sync::kProcess).ok());
  EXPECT_EQ(Names("k/"), "k/2 ");
}

TEST_P(RecordStoreTest, DeletingAPrefixLeavesItsNeighbours) {
  for (const char* name : {"k", "k/", "k/a", "k/\xff\xff", "k0", "l"}) {
    Put(name, "");
  }
  RecordBatch batch;
  batch.DeletePrefix("k/");
  ASSERT_TRUE(store_->Write(batch, Sync::kMachine).ok());
  EXPECT_EQ(Names("k"), "k k0 ");
  EXPECT_EQ(Names("l"), "l ");
}

std::unique_ptr<RecordStore> OpenRocksDb(const std::string& directory) {
  auto store = RocksDbRecordStore::Open(directory);
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

INSTANTIATE_TEST_SUITE_P(All, RecordStoreTest,
                         testing::Values(
                             Implementation{
                                 "Memory",
                                 [](const std::string&) {
                                   return std::make_unique<MemoryRecordStore>();
                                 }},
                             Implementation{"RocksDb", OpenRocksDb}),
                         [](const auto& info) { return info.param.name; });

TEST(RocksDbRecordStoreTest, KeepsRecordsOverARestart) {
  const std::string directory = testing::TempDir() + "/restart";
  {
    auto store = OpenRocksDb(directory);
    RecordBatch batch;
    batch.Put("a", "1");
    ASSERT_TRUE(store->Write(batch, Sync::kProcess).ok());
  }
  EXPECT_EQ(*OpenRocksDb(directory)->Get("a"), "1");
}

TEST(RocksDbRecordStoreTest, ASecondProcessIsTurnedAway) {
  const std::string directory = testing::TempDir() + "/locked";
  const auto store = OpenRocksDb(directory);
  const auto second = RocksDbRecordStore::Open(directory);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition)
      << second.status();
}

// After such an error RocksDB refuses all writes, even if the disk works again.
TEST(RocksDbRecordStoreTest, ADiskThatCannotBeWrittenIsDataLoss) {
  const std::string directory = testing::TempDir() + "/unwritable";
  auto store = RocksDbRecordStore::Open(directory);
  ASSERT_TRUE(store.ok()) << store.status();
  RecordBatch batch;
  batch.Put("a", std::string(1 << 20, 'x'));
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {100'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status written = (*store)->Write(batch, Sync::kProcess);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(absl::IsDataLoss(written)) << written;
  EXPECT_NE(written.message().find("File too large"), std::string::npos)
      << written;
  EXPECT_NE(written.message().find(directory), std::string::npos) << written;
}

TEST(RocksDbRecordStoreTest, AnotherFormatIsNotRead) {
  const std::string directory = testing::TempDir() + "/format";
  {
    auto store = OpenRocksDb(directory);
    RecordBatch batch;
    batch.Put("format", "999");
    ASSERT_TRUE(store->Write(batch, Sync::kMachine).ok());
  }
  const auto again = RocksDbRecordStore::Open(directory);
  EXPECT_TRUE(absl::IsDataLoss(again.status())) << again.status();
  EXPECT_NE(again.status().message().find("999"), std::string::npos);
}

TEST(MemoryRecordStoreTest, APowerCutForgetsWhatWasNotSynced) {
  MemoryRecordStore store;
  RecordBatch synced, unsynced;
  synced.Put("a", "1");
  unsynced.Put("b", "2");
  ASSERT_TRUE(store.Write(synced, Sync::kMachine).ok());
  ASSERT_TRUE(store.Write(unsynced, Sync::kProcess).ok());
  store.CutPower();
  EXPECT_TRUE(store.Get("a").ok());
  EXPECT_FALSE(store.Get("b").ok());
}

TEST(PrefixEndTest, IsTheLeastNameBehindThePrefix) {
  EXPECT_EQ(PrefixEnd("a/"), "a0");
  EXPECT_EQ(PrefixEnd(std::string("a\xff\xff")), "b");
  EXPECT_EQ(PrefixEnd(std::string("\xff")), "");
}

}  // namespace
}  // namespace atl::server
