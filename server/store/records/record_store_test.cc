// The contract of RecordStore, on every implementation.

#include "server/store/records/record_store.h"

#include <memory>
#include <string>

#include "base/io/testing/fake_file_system.h"
#include "gtest/gtest.h"
#include "server/store/records/log_record_store.h"
#include "server/store/testing/memory_record_store.h"

namespace atl::server {
namespace {

enum class Kind { kMemory, kLog };

class RecordStoreTest : public testing::TestWithParam<Kind> {
 protected:
  RecordStoreTest() {
    if (GetParam() == Kind::kMemory) {
      store_ = std::make_unique<MemoryRecordStore>();
      return;
    }
    auto opened = LogRecordStore::Open(fs_, "records");
    EXPECT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
  }

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

  FakeFileSystem fs_;
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
  EXPECT_TRUE(store_->damage().ok());
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

INSTANTIATE_TEST_SUITE_P(All, RecordStoreTest,
                         testing::Values(Kind::kMemory, Kind::kLog),
                         [](const auto& info) {
                           return info.param == Kind::kMemory ? "Memory"
                                                              : "Log";
                         });

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

}  // namespace
}  // namespace atl::server
