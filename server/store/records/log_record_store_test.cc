// Records over restarts, power cuts, full disks and disks that lie.

#include "server/store/records/log_record_store.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/io/forwarding_file_system.h"
#include "base/io/testing/fake_file_system.h"
#include "base/io/testing/dying_file_system.h"
#include "gtest/gtest.h"
#include "server/store/records/record_frame.h"

namespace atl::server {
namespace {

using Call = FakeFileSystem::Fault::Call;

constexpr char kDirectory[] = "run/records";
constexpr char kLog[] = "run/records/000001.log";
constexpr char kMark[] = "run/records/mark";

unsigned ChooseSeed() {
  const char* const given = std::getenv("ATOLL_TEST_SEED");
  unsigned seed = 0;
  if (given == nullptr || !absl::SimpleAtoi(given, &seed)) {
    seed = std::random_device{}();
  }
  std::cout << "ATOLL_TEST_SEED=" << seed << std::endl;
  return seed;
}

RecordBatch MakeBatch(const std::string& name, const std::string& value) {
  RecordBatch batch;
  batch.Put(name, value);
  return batch;
}

std::map<std::string, std::string> ReadAll(const RecordStore& store) {
  const auto records = *store.Scan("");
  return {records.begin(), records.end()};
}

// All files of the store, by path.
std::map<std::string, std::string> ReadFiles(FileSystem& fs) {
  std::map<std::string, std::string> files;
  const auto names = fs.List(kDirectory);
  for (const std::string& name : *names) {
    const std::string path = absl::StrCat(kDirectory, "/", name);
    files[path] = *ReadFile(fs, path);
  }
  return files;
}

class LogRecordStoreTest : public testing::Test {
 protected:
  LogRecordStoreTest() : random_(ChooseSeed()) { Open(); }

  absl::Status TryOpen(FileSystem& fs) {
    store_.reset();
    auto opened = LogRecordStore::Open(fs, kDirectory);
    if (!opened.ok()) return opened.status();
    store_ = *std::move(opened);
    return absl::OkStatus();
  }
  void Open() {
    const absl::Status opened = TryOpen(fs_);
    ASSERT_TRUE(opened.ok()) << opened;
  }

  void Put(const std::string& name, const std::string& value,
           Sync sync = Sync::kMachine) {
    const absl::Status written = store_->Write(MakeBatch(name, value), sync);
    ASSERT_TRUE(written.ok()) << written;
  }
  absl::Status TryPut(const std::string& name, const std::string& value,
                      Sync sync = Sync::kMachine) {
    return store_->Write(MakeBatch(name, value), sync);
  }

  void Fail(Call call, const std::string& path_part, int error_number,
            int64_t written_bytes = 0) {
    FakeFileSystem::Fault fault;
    fault.call = call;
    fault.path_part = path_part;
    fault.error_number = error_number;
    fault.written_bytes = written_bytes;
    fs_.AddFault(fault);
  }

  // Writes to a file as a disk does that changes bytes by itself.
  void Overwrite(const std::string& path, int64_t offset,
                 const std::string& bytes) {
    auto file = *fs_.OpenForWrite(path);
    ASSERT_TRUE(file->WriteAt(offset, bytes).ok());
    ASSERT_TRUE(file->Sync().ok());
  }

  // Where the frame `seq` lies in the log.
  int64_t FindFrame(uint64_t seq) {
    const std::string bytes = *ReadFile(fs_, kLog);
    int64_t at = 0;
    for (const RecordFrame& frame : ScanLog(bytes).frames) {
      if (frame.seq == seq) return at;
      at += frame.byte_count();
    }
    ADD_FAILURE() << "no frame " << seq;
    return 0;
  }

  // The open fails with `what` and changes no byte.
  void ExpectDamage(const std::string& what) {
    store_.reset();
    const auto before = ReadFiles(fs_);
    const absl::Status opened = TryOpen(fs_);
    EXPECT_TRUE(absl::IsDataLoss(opened)) << opened;
    EXPECT_TRUE(absl::StrContains(opened.message(), what)) << opened;
    EXPECT_TRUE(ReadFiles(fs_) == before);
  }

  std::mt19937 random_;
  FakeFileSystem fs_;
  std::unique_ptr<LogRecordStore> store_;
};

TEST_F(LogRecordStoreTest, KeepsRecordsOverARestart) {
  Put("a", "1", Sync::kProcess);
  Put("b", "2");
  RecordBatch batch;
  batch.Delete("b");
  batch.Put("c", "3");
  ASSERT_TRUE(store_->Write(batch, Sync::kProcess).ok());
  Open();
  EXPECT_EQ(ReadAll(*store_),
            (std::map<std::string, std::string>{{"a", "1"}, {"c", "3"}}));
  // Records that a start has found stay, even if the power fails afterwards.
  store_.reset();
  fs_.Crash();
  Open();
  EXPECT_EQ(ReadAll(*store_),
            (std::map<std::string, std::string>{{"a", "1"}, {"c", "3"}}));
}

TEST_F(LogRecordStoreTest, AStartRemovesOnlyLogsThatACrashLeft) {
  const std::string directory = absl::StrCat(kDirectory, "/");
  for (const char* name : {"000007.log.tmp", "notes.tmp", "app.log.tmp"}) {
    ASSERT_TRUE(fs_.OpenForWrite(directory + name).ok());
  }
  Open();
  EXPECT_FALSE(fs_.Exists(directory + "000007.log.tmp"));
  EXPECT_TRUE(fs_.Exists(directory + "notes.tmp"));
  EXPECT_TRUE(fs_.Exists(directory + "app.log.tmp"));
}

TEST_F(LogRecordStoreTest, APowerCutForgetsWhatWasNotSynced) {
  Put("a", "1");
  Put("b", "2", Sync::kProcess);
  store_.reset();
  fs_.Crash();
  Open();
  EXPECT_EQ(ReadAll(*store_), (std::map<std::string, std::string>{{"a", "1"}}));
}

// The disk has any subset of the pages that were not synced.
TEST_F(LogRecordStoreTest, ATornTailIsCutOffAndTheStoreGoesOn) {
  constexpr size_t kPage = 512;
  std::map<std::string, std::string> expected;
  int count = 0;
  for (int life = 0; life < 60; ++life) {
    SCOPED_TRACE(life);
    const auto value = [&] {
      return std::string(random_() % 1500, static_cast<char>('a' + life % 26));
    };
    for (int i = 0; i < 3; ++i) {
      const std::string name = absl::StrCat("s", ++count);
      expected[name] = value();
      Put(name, expected[name]);
    }
    const std::string before = *ReadFile(fs_, kLog);
    std::vector<std::pair<std::string, std::string>> unsynced;
    for (int i = 0; i < 5; ++i) {
      unsynced.emplace_back(absl::StrCat("u", ++count), value());
      Put(unsynced.back().first, unsynced.back().second, Sync::kProcess);
    }
    std::string after = *ReadFile(fs_, kLog);
    store_.reset();
    for (size_t page = 0; page < after.size(); page += kPage) {
      const size_t size = std::min(kPage, after.size() - page);
      if (random_() % 3 != 0) continue;
      std::string old = before.substr(std::min(page, before.size()), size);
      old.resize(size, '\0');
      after.replace(page, size, old);
    }
    Overwrite(kLog, 0, after);
    Open();
    // Everything synced, and the first ones of the others.
    const auto found = ReadAll(*store_);
    for (const auto& [name, bytes] : unsynced) {
      if (found.count(name) == 0) break;
      expected[name] = bytes;
    }
    ASSERT_EQ(found, expected);
    if (random_() % 2 == 0) {
      // Nothing behind the end ever comes back.
      store_.reset();
      fs_.Crash();
      Open();
      ASSERT_EQ(ReadAll(*store_), expected);
    }
  }
}

TEST_F(LogRecordStoreTest, AZeroPageInASyncedRecordIsDataLoss) {
  for (int i = 1; i <= 8; ++i) {
    Put(absl::StrCat("k", i), std::string(5000, 'x'));
  }
  // The first frame is the empty snapshot; k3 is frame 4.
  Overwrite(kLog, FindFrame(4) + 1000, std::string(512, '\0'));
  ExpectDamage(absl::StrCat(kLog, ": record 4 is damaged, 9 were synced"));
  // Without the mark, the frames behind the damage tell.
  ASSERT_TRUE(fs_.Remove(kMark).ok());
  ExpectDamage(absl::StrCat(kLog, ": record 4 is damaged, 8 were synced"));

  const auto before = ReadFiles(fs_);
  auto damaged = LogRecordStore::OpenDamaged(fs_, kDirectory);
  ASSERT_TRUE(damaged.ok()) << damaged.status();
  EXPECT_EQ(ReadAll(**damaged).size(), 2u);
  EXPECT_TRUE(absl::IsDataLoss((*damaged)->damage()));
  EXPECT_EQ((*damaged)->Write(MakeBatch("a", ""), Sync::kProcess),
            (*damaged)->damage());
  EXPECT_TRUE(ReadFiles(fs_) == before);
}

TEST_F(LogRecordStoreTest, ALostEndIsDataLossBecauseOfTheMark) {
  for (int i = 1; i <= 8; ++i) Put(absl::StrCat("k", i), "value");
  const std::string whole = *ReadFile(fs_, kLog);
  const int64_t at = FindFrame(7);
  Overwrite(kLog, at, std::string(whole.size() - at, '\0'));
  ExpectDamage(absl::StrCat(kLog, ": record 7 is damaged, 9 were synced"));
  Overwrite(kLog, 0, whole);
  Open();
  EXPECT_EQ(ReadAll(*store_).size(), 8u);
}

TEST_F(LogRecordStoreTest, ALogThatIsGoneIsDataLoss) {
  Put("a", "1");
  ASSERT_TRUE(fs_.Remove(kLog).ok());
  ExpectDamage("has no log, and 2 records were synced");
}

TEST_F(LogRecordStoreTest, ADamagedSnapshotIsDataLoss) {
  Put("a", "1");
  ASSERT_TRUE(fs_.Remove(kMark).ok());
  Overwrite(kLog, 0, "x");
  ExpectDamage("record 1 is damaged");
}

TEST_F(LogRecordStoreTest, ADamagedMarkTellsNothingAndIsMadeAgain) {
  Put("a", "1");
  Overwrite(kMark, 0, std::string(2 * SlotFile::kSlotBytes, 'x'));
  Open();
  EXPECT_EQ(*store_->Get("a"), "1");
  EXPECT_TRUE(SlotFile::Read(fs_, kMark).ok());
}

// --- A full disk -------------------------------------------------------------

TEST_F(LogRecordStoreTest, AFullDiskRefusesABatchAndLaterOnesWorkAgain) {
  std::map<std::string, std::string> expected = {{"first", "1"}};
  Put("first", "1");
  fs_.SetFull();  // But for the space that the log has reserved.
  int count = 0;
  absl::Status status;
  while (status.ok() && ++count < 1000) {
    const std::string name = absl::StrCat("k", count);
    status = TryPut(name, std::string(1000, 'x'));
    if (status.ok()) expected[name] = std::string(1000, 'x');
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_GT(expected.size(), 2u);
  EXPECT_TRUE(absl::StartsWith(status.message(), "cannot write records: "))
      << status;
  EXPECT_EQ(ReadAll(*store_), expected);
  fs_.SetCapacity(int64_t{1} << 40);
  Put("later", "1");
  expected["later"] = "1";
  store_.reset();
  fs_.Crash();
  Open();
  EXPECT_EQ(ReadAll(*store_), expected);
}

TEST_F(LogRecordStoreTest, WhatAFullDiskTookOfABatchIsNotRead) {
  Put("a", "1");
  for (const int error_number : {ENOSPC, EDQUOT}) {
    for (const int64_t bytes : {0, 20, 60, 1000}) {
      Fail(Call::kWrite, ".log", error_number, bytes);
      EXPECT_TRUE(
          absl::IsResourceExhausted(TryPut("b", std::string(100, 'b'))));
      Open();
      EXPECT_EQ(ReadAll(*store_).size(), 1u) << bytes;
    }
  }
  Fail(Call::kWrite, ".log", ENOSPC, 1000);
  EXPECT_FALSE(TryPut("b", std::string(100, 'b')).ok());
  Put("c", "3");
  Open();
  EXPECT_EQ(ReadAll(*store_),
            (std::map<std::string, std::string>{{"a", "1"}, {"c", "3"}}));
}

// --- A disk that fails -------------------------------------------------------

TEST_F(LogRecordStoreTest, AfterAnErrorNoWriteSucceedsUntilItIsOpenedAgain) {
  for (const auto& [call, error_number] :
       std::vector<std::pair<Call, int>>{{Call::kWrite, EIO},
                                         {Call::kWrite, EFBIG},
                                         {Call::kWrite, EROFS},
                                         {Call::kSync, EIO},
                                         {Call::kSync, ENOSPC}}) {
    SCOPED_TRACE(error_number);
    Put("a", "1");
    Fail(call, ".log", error_number);
    const absl::Status failed = TryPut("b", "2");
    EXPECT_TRUE(absl::IsDataLoss(failed)) << failed;
    EXPECT_TRUE(absl::StrContains(failed.message(), kLog)) << failed;
    EXPECT_EQ(TryPut("c", "3"), failed);
    EXPECT_EQ(TryPut("c", "3", Sync::kProcess), failed);
    Open();
    EXPECT_EQ(*store_->Get("a"), "1");
    EXPECT_FALSE(store_->Get("c").ok());
    Put("c", "3");
    RecordBatch batch;
    batch.DeletePrefix("b");
    batch.DeletePrefix("c");
    ASSERT_TRUE(store_->Write(batch, Sync::kMachine).ok());
  }
}

// The system forgets that bytes of a failed sync are not on the disk.
TEST_F(LogRecordStoreTest, AStartWritesAgainWhatAFailedSyncLeft) {
  Put("a", "1", Sync::kProcess);
  Fail(Call::kSync, ".log", EIO);
  EXPECT_FALSE(TryPut("b", "2").ok());
  Open();
  ASSERT_EQ(ReadAll(*store_).size(), 2u);
  store_.reset();
  fs_.Crash();
  Open();
  EXPECT_EQ(ReadAll(*store_).size(), 2u);
}

TEST_F(LogRecordStoreTest, ADirectoryThatCannotBeSeenIsNotEmpty) {
  class Blind : public ForwardingFileSystem {
   public:
    using ForwardingFileSystem::ForwardingFileSystem;
    bool Exists(const std::string& path) override { return false; }
  };
  Put("a", "1");
  Blind blind(fs_);
  ASSERT_TRUE(TryOpen(blind).ok());
  EXPECT_EQ(*store_->Get("a"), "1");
  Fail(Call::kList, kDirectory, EIO);
  EXPECT_TRUE(absl::IsDataLoss(TryOpen(blind)));
  Open();
  EXPECT_EQ(*store_->Get("a"), "1");
}

// --- Compaction --------------------------------------------------------------

TEST_F(LogRecordStoreTest, ALongLogIsReplacedByItsRecords) {
  Put("kept", std::string(100'000, 'k'));
  for (int i = 0; i < 300; ++i) Put("changed", std::string(10'000, 'x'));
  const auto names = *fs_.List(kDirectory);
  ASSERT_EQ(names.size(), 2u);
  EXPECT_GT(names[0], "000001.log");
  EXPECT_LT(ReadFile(fs_, absl::StrCat(kDirectory, "/", names[0]))->size(),
            2u << 20);
  const auto expected = ReadAll(*store_);
  store_.reset();
  fs_.Crash();
  Open();
  EXPECT_EQ(ReadAll(*store_), expected);
}

TEST_F(LogRecordStoreTest, ASnapshotOfManyFramesComesBack) {
  for (int i = 0; i < 5; ++i) {
    Put(absl::StrCat("kept", i), std::string(700'000, 'k'));
  }
  for (int i = 0; i < 25; ++i) Put("changed", std::string(700'000, 'x'));
  EXPECT_FALSE(fs_.Exists(kLog));
  const auto expected = ReadAll(*store_);
  Open();
  EXPECT_EQ(ReadAll(*store_), expected);
}

TEST_F(LogRecordStoreTest, ACompactionThatFindsNoSpaceIsTriedAgain) {
  for (const Call call : {Call::kWrite, Call::kRename}) {
    SCOPED_TRACE(static_cast<int>(call));
    const std::string log = (*fs_.List(kDirectory))[0];
    Fail(call, ".log.tmp", ENOSPC);
    for (int i = 0; i < 120; ++i) Put("changed", std::string(10'000, 'x'));
    EXPECT_EQ(*fs_.List(kDirectory), (std::vector<std::string>{log, "mark"}));
    Open();
    EXPECT_EQ(*store_->Get("changed"), std::string(10'000, 'x'));
    for (int i = 0; i < 120; ++i) Put("changed", std::string(10'000, 'y'));
    EXPECT_GT((*fs_.List(kDirectory))[0], log);
    Open();
    EXPECT_EQ(*store_->Get("changed"), std::string(10'000, 'y'));
  }
}

// Writes to files are changes, too.
class DyingDisk : public DyingFileSystem {
 public:
  using DyingFileSystem::DyingFileSystem;

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenWritable(
      const std::string& path, bool is_private) override {
    auto file = DyingFileSystem::OpenWritable(path, is_private);
    if (!file.ok()) return file.status();
    return std::make_unique<File>(*this, *std::move(file));
  }

 private:
  class File : public ForwardingFile {
   public:
    File(DyingDisk& fs, std::unique_ptr<RandomAccessFile> file)
        : ForwardingFile(std::move(file)), fs_(fs) {}
    absl::Status WriteAt(int64_t offset,
                         absl::Span<const absl::string_view> pieces) override {
      const absl::Status alive = fs_.Step();
      return alive.ok() ? ForwardingFile::WriteAt(offset, pieces) : alive;
    }
    absl::Status Sync() override {
      const absl::Status alive = fs_.Step();
      return alive.ok() ? ForwardingFile::Sync() : alive;
    }
    absl::Status Preallocate(int64_t size) override {
      const absl::Status alive = fs_.Step();
      return alive.ok() ? ForwardingFile::Preallocate(size) : alive;
    }

   private:
    DyingDisk& fs_;
  };
};

TEST_F(LogRecordStoreTest, ADeathAtAnyPointLosesNothingThatWasWritten) {
  bool is_over = false;
  for (int point = 0; !is_over; ++point) {
    for (const bool cuts_power : {false, true}) {
      SCOPED_TRACE(absl::StrCat(point, cuts_power ? " with power" : ""));
      FakeFileSystem files;
      DyingDisk dying(files, point);
      std::map<std::string, std::string> written;
      if (TryOpen(dying).ok()) {
        // The log is replaced after a few.
        for (int i = 0; i < 10; ++i) {
          const std::string value(300'000, static_cast<char>('a' + i));
          if (!TryPut("changed", value).ok()) break;
          written["changed"] = value;
          if (!TryPut(absl::StrCat("k", i), "kept").ok()) break;
          written[absl::StrCat("k", i)] = "kept";
        }
      }
      is_over = !dying.is_dead();
      store_.reset();
      if (cuts_power) files.Crash();
      const absl::Status opened = TryOpen(files);
      ASSERT_TRUE(opened.ok()) << opened;
      auto found = ReadAll(*store_);
      // One batch more than what was told may be there.
      EXPECT_LE(found.size(), written.size() + 1);
      for (const auto& [name, value] : written) {
        if (name == "changed") {
          EXPECT_GE(found[name], value);
        } else {
          EXPECT_EQ(found[name], value);
        }
      }
      ASSERT_TRUE(TryPut("after", "1").ok());
    }
  }
}

// The first start after the death does not know that the name of the log it
// goes on with is in memory only.
TEST_F(LogRecordStoreTest, APowerCutAfterADeathLosesNothingThatWasWritten) {
  bool is_over = false;
  for (int point = 0; !is_over; ++point) {
    SCOPED_TRACE(point);
    FakeFileSystem files;
    DyingDisk dying(files, point);
    if (TryOpen(dying).ok()) {
      for (int i = 0; i < 6; ++i) {
        if (!TryPut("changed", std::string(300'000, 'x')).ok()) break;
      }
    }
    is_over = !dying.is_dead();
    store_.reset();
    ASSERT_TRUE(TryOpen(files).ok());
    ASSERT_TRUE(TryPut("after", "1").ok());
    store_.reset();
    files.Crash();
    const absl::Status opened = TryOpen(files);
    ASSERT_TRUE(opened.ok()) << opened;
    EXPECT_TRUE(store_->Get("after").ok());
  }
}

// --- Threads -----------------------------------------------------------------

// Calls a hook before each sync of a log.
class SyncHookFileSystem : public ForwardingFileSystem {
 public:
  SyncHookFileSystem(FileSystem& files, std::function<void()> hook)
      : ForwardingFileSystem(files), hook_(std::move(hook)) {}

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenWritable(
      const std::string& path, bool is_private) override {
    auto file = ForwardingFileSystem::OpenWritable(path, is_private);
    if (!file.ok() || !absl::EndsWith(path, ".log")) return file;
    return std::make_unique<File>(hook_, *std::move(file));
  }

 private:
  class File : public ForwardingFile {
   public:
    File(const std::function<void()>& hook,
         std::unique_ptr<RandomAccessFile> file)
        : ForwardingFile(std::move(file)), hook_(hook) {}
    absl::Status Sync() override {
      hook_();
      return ForwardingFile::Sync();
    }

   private:
    const std::function<void()>& hook_;
  };

  const std::function<void()> hook_;
};

TEST_F(LogRecordStoreTest, ThreadsThatWriteAtTheSameTimeShareASync) {
  constexpr int kThreads = 8;
  std::atomic<int> sync_count = 0;
  FakeFileSystem files;
  SyncHookFileSystem hooked(files, [&] {
    // The first sync lasts until all threads have written.
    if (++sync_count > 1) return;
    while (ReadAll(*store_).size() < kThreads) std::this_thread::yield();
  });
  ASSERT_TRUE(TryOpen(hooked).ok());
  ASSERT_EQ(sync_count, 0);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([this, i] { Put(absl::StrCat("k", i), "1"); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sync_count, 2);
  store_.reset();
  files.Crash();
  ASSERT_TRUE(TryOpen(files).ok());
  EXPECT_EQ(ReadAll(*store_).size(), kThreads);
}

TEST_F(LogRecordStoreTest, ThreadsWriteWhileTheLogIsReplaced) {
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([this, i] {
      for (int j = 0; j < 100; ++j) {
        Put(absl::StrCat("k", i), absl::StrCat(j, std::string(20'000, 'x')),
            j % 3 == 0 ? Sync::kMachine : Sync::kProcess);
      }
      Put(absl::StrCat("end", i), "");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(fs_.Exists(kLog));
  const auto expected = ReadAll(*store_);
  EXPECT_EQ(expected.size(), 2u * kThreads);
  store_.reset();
  fs_.Crash();
  Open();
  EXPECT_EQ(ReadAll(*store_), expected);
}

}  // namespace
}  // namespace atl::server
