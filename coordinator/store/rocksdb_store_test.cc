// Tests of the crashes and damage that the store on disk survives or detects,
// and of the space that it needs.

#include "coordinator/store/rocksdb_store.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/io/forwarding_file_system.h"
#include "base/io/posix_file_system.h"
#include "base/status/annotate.h"
#include "coordinator/store/log_database.h"
#include "coordinator/store/testing/open_or_create.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/db.h"
#include "rocksdb/file_system.h"

namespace atl::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using StatusCode = absl::StatusCode;
using Files = std::map<std::string, std::string>;  // Content by name.

constexpr size_t kPageBytes = 4096;

std::string NewDirectory() {
  std::string pattern = testing::TempDir() + "/store_XXXXXX";
  return mkdtemp(pattern.data());
}

// Record `revision` of run "a", with a reason of `reason_bytes` bytes.
Batch OneRecord(int64_t revision, size_t reason_bytes = 10) {
  Batch batch;
  LogEntry& entry = batch.entries.emplace_back();
  entry.run_id = "a";
  entry.record.set_revision(revision);
  entry.record.mutable_run_state_set()->set_reason(
      std::string(reason_bytes, 'r'));
  return batch;
}

absl::Status AppendAll(Store& store, int64_t begin, int64_t end,
                       size_t reason_bytes = 10) {
  for (int64_t revision = begin; revision < end; ++revision) {
    const absl::Status status = store.Append(OneRecord(revision, reason_bytes));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

int64_t CountRecords(const Store& store) {
  const auto records = store.Scan("a", 0, 1 << 20);
  EXPECT_TRUE(records.ok()) << records.status();
  return records.ok() ? static_cast<int64_t>(records->size()) : -1;
}

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

Files ReadDirectory(const std::string& directory) {
  Files files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    files[entry.path().filename().string()] = ReadBytes(entry.path().string());
  }
  return files;
}

std::string WriteDirectory(const Files& files) {
  const std::string directory = NewDirectory();
  for (const auto& [name, bytes] : files) {
    WriteBytes(directory + "/" + name, bytes);
  }
  return directory;
}

// The name of the one file of `files` with this part in its name.
std::string FindName(const Files& files, const std::string& part) {
  std::string found;
  for (const auto& [name, bytes] : files) {
    if (name.find(part) == std::string::npos || bytes.empty()) continue;
    EXPECT_EQ(found, "") << name;
    found = name;
  }
  EXPECT_NE(found, "") << part;
  return found;
}

// Makes a page, or what the file has of it, zeros.
void ZeroPage(std::string& bytes, size_t page) {
  const size_t begin = page * kPageBytes;
  const size_t count = std::min(kPageBytes, bytes.size() - begin);
  bytes.replace(begin, count, count, '\0');
}

// The store in `files` has lost synced batches: it says so, shows what is
// before them, and changes nothing.
void ExpectDamage(const Files& files, int64_t written) {
  const std::string directory = WriteDirectory(files);
  {
    const auto store = OpenOrCreate(directory);
    ASSERT_TRUE(store.ok()) << store.status();
    const absl::Status damage = (*store)->damage();
    EXPECT_EQ(damage.code(), StatusCode::kDataLoss) << damage;
    const int64_t held = (*store)->index();
    EXPECT_LT(held, written);
    EXPECT_THAT(std::string(damage.message()),
                AllOf(HasSubstr(directory),
                      HasSubstr("holds " + std::to_string(held) + " synced"),
                      HasSubstr(std::to_string(written) + " were written")));
    EXPECT_EQ(CountRecords(**store), held);
    EXPECT_EQ((*store)->Append(OneRecord(held + 1)), damage);
    EXPECT_EQ((*store)->index(), held);
  }
  EXPECT_EQ(ReadDirectory(directory), files);
  std::filesystem::remove_all(directory);
}

TEST(RocksDbStoreTest, DropsATornBatchThatNobodyWasToldOf) {
  const std::string directory = NewDirectory();
  Files before;
  {
    auto store = OpenOrCreate(directory);
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE(AppendAll(**store, 1, 4).ok());
    before = ReadDirectory(directory);
    ASSERT_TRUE((*store)->Append(OneRecord(4, 5 * kPageBytes)).ok());
  }
  Files files = ReadDirectory(directory);
  std::string& log = files[FindName(files, ".log")];
  const size_t pages = log.size() / kPageBytes;
  ASSERT_GE(pages, 4u);
  // A power cut before the mark was written: any page but the first, which has
  // the synced batches, may be missing.
  for (size_t page = 1; page < pages; ++page) {
    SCOPED_TRACE(page);
    Files torn = files;
    torn["mark"] = before["mark"];
    ZeroPage(torn[FindName(files, ".log")], page);
    const std::string copy = WriteDirectory(torn);
    for (int64_t start = 0; start < 2; ++start) {
      auto store = OpenOrCreate(copy);
      ASSERT_TRUE(store.ok()) << store.status();
      EXPECT_TRUE((*store)->damage().ok()) << (*store)->damage();
      EXPECT_EQ((*store)->index(), 3 + start);
      EXPECT_EQ(CountRecords(**store), 3 + start);
      EXPECT_TRUE((*store)->Append(OneRecord(4 + start)).ok());
    }
  }
}

TEST(RocksDbStoreTest, NoticesAnyLostPageOfItsLog) {
  const std::string directory = NewDirectory();
  constexpr int64_t kWritten = 60;
  {
    auto store = OpenOrCreate(directory);
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE(AppendAll(**store, 1, kWritten + 1, 3000).ok());
  }
  const Files files = ReadDirectory(directory);
  const std::string name = FindName(files, ".log");
  const size_t pages = files.at(name).size() / kPageBytes;
  ASSERT_GE(pages, 40u);
  // Page 0 has the format: without it the directory is not known.
  for (size_t page = 1; page < pages; ++page) {
    SCOPED_TRACE(page);
    Files torn = files;
    ZeroPage(torn[name], page);
    ExpectDamage(torn, kWritten);
  }
  Files shorter = files;
  shorter[name].resize(pages / 2 * kPageBytes);
  ExpectDamage(shorter, kWritten);
}

TEST(RocksDbStoreTest, NoticesALostPageBehindItsTables) {
  const std::string directory = NewDirectory();
  for (const auto& [begin, end] : {std::pair(1, 5), std::pair(5, 40)}) {
    auto store = OpenOrCreate(directory);
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE(AppendAll(**store, begin, end, 3000).ok());
  }
  const Files files = ReadDirectory(directory);
  const std::string name = FindName(files, ".log");
  for (const size_t page : {0, 3, 8}) {
    SCOPED_TRACE(page);
    Files torn = files;
    ZeroPage(torn[name], page);
    ExpectDamage(torn, 39);
  }
  Files without = files;
  without.erase(name);
  ExpectDamage(without, 39);
}

TEST(RocksDbStoreTest, JumpsOverNumbersAndStillNoticesLostBatches) {
  const std::string directory = NewDirectory();
  {
    const auto store = *OpenOrCreate(directory);
    ASSERT_TRUE(AppendAll(*store, 1, 4).ok());
    ASSERT_TRUE(store->JumpTo(1000).ok());
    EXPECT_EQ(store->index(), 1000);
  }
  {
    const auto store = *OpenOrCreate(directory);
    ASSERT_TRUE(store->damage().ok()) << store->damage();
    EXPECT_EQ(store->index(), 1000);
    ASSERT_TRUE(AppendAll(*store, 4, 6).ok());
    EXPECT_EQ(store->index(), 1002);
  }
  const Files files = ReadDirectory(directory);
  {
    const auto store = *OpenOrCreate(directory);
    ASSERT_TRUE(store->damage().ok()) << store->damage();
    EXPECT_EQ(store->index(), 1002);
    EXPECT_EQ(CountRecords(*store), 5);
  }
  // RocksDB's log has the two batches after the jump.
  Files lost = files;
  lost[FindName(files, ".log")].clear();
  const std::string damaged = WriteDirectory(lost);
  const auto store = *OpenOrCreate(damaged);
  EXPECT_EQ(store->damage().code(), StatusCode::kDataLoss) << store->damage();
  EXPECT_EQ(store->index(), 1000);
  std::filesystem::remove_all(directory);
  std::filesystem::remove_all(damaged);
}

TEST(RocksDbStoreTest, StartsWithATornEndOfItsManifest) {
  const std::string directory = NewDirectory();
  for (int64_t revision = 1; revision < 4; ++revision) {
    ASSERT_TRUE((*OpenOrCreate(directory))->Append(OneRecord(revision)).ok());
  }
  const Files files = ReadDirectory(directory);
  int refused_count = 0;  // By RocksDB alone.
  // Headers are a checksum, a length (0x1388 is 5000) and a type.
  for (const std::string& tail :
       {std::string(100, 'x'), std::string(3, '\0'),
        std::string(9000, '\0') + "x", std::string("\1\1\1\1\3\0\1abc", 10),
        "\1\1\1\1\x88\x13\1" + std::string(2000, 'x') +
            std::string(3000, '\0')}) {
    Files torn = files;
    torn[FindName(files, "MANIFEST")] += tail;
    const std::string copy = WriteDirectory(torn);
    rocksdb::DB* raw = nullptr;
    refused_count += !rocksdb::DB::OpenForReadOnly({}, copy, &raw).ok();
    std::unique_ptr<rocksdb::DB>(raw).reset();
    for (int64_t start = 0; start < 2; ++start) {
      auto store = OpenOrCreate(copy);
      ASSERT_TRUE(store.ok()) << store.status();
      EXPECT_TRUE((*store)->damage().ok()) << (*store)->damage();
      EXPECT_EQ(CountRecords(**store), 3 + start);
      EXPECT_TRUE((*store)->Append(OneRecord(4 + start)).ok());
    }
  }
  EXPECT_GT(refused_count, 0);
}

TEST(RocksDbStoreTest, NoticesWhatItsManifestHasLost) {
  const std::string directory = NewDirectory();
  constexpr int64_t kWritten = 6;
  for (int64_t revision = 1; revision <= kWritten; ++revision) {
    ASSERT_TRUE((*OpenOrCreate(directory))->Append(OneRecord(revision)).ok());
  }
  { ASSERT_TRUE(OpenOrCreate(directory).ok()); }
  const Files files = ReadDirectory(directory);
  const std::string name = FindName(files, "MANIFEST");
  int damaged_count = 0;
  for (size_t begin = 0; begin < files.at(name).size(); begin += 16) {
    SCOPED_TRACE(begin);
    Files torn = files;
    std::string& manifest = torn[name];
    manifest.replace(begin, std::string::npos, manifest.size() - begin, '\0');
    const std::string copy = WriteDirectory(torn);
    auto store = OpenOrCreate(copy);
    if (!store.ok()) {
      EXPECT_EQ(store.status().code(), StatusCode::kDataLoss) << store.status();
      EXPECT_EQ(ReadDirectory(copy), torn);
      ++damaged_count;
    } else if (!(*store)->damage().ok()) {
      store->reset();
      EXPECT_EQ(ReadDirectory(copy), torn);
      ++damaged_count;
    } else {
      EXPECT_EQ(CountRecords(**store), kWritten);
    }
    if (store.ok()) store->reset();
    std::filesystem::remove_all(copy);
  }
  EXPECT_GT(damaged_count, 5);
}

TEST(RocksDbStoreTest, NoticesThatItsMarkIsUnreadable) {
  const std::string directory = NewDirectory();
  ASSERT_TRUE(AppendAll(**OpenOrCreate(directory), 1, 4).ok());
  Files files = ReadDirectory(directory);
  files["mark"].assign(files["mark"].size(), '\0');
  Files without = files;
  without.erase("mark");
  for (const Files& damaged : {files, without}) {
    const std::string copy = WriteDirectory(damaged);
    {
      const auto store = OpenOrCreate(copy);
      ASSERT_TRUE(store.ok()) << store.status();
      EXPECT_EQ((*store)->damage().code(), StatusCode::kDataLoss);
      EXPECT_THAT(std::string((*store)->damage().message()),
                  HasSubstr(copy + "/mark"));
      EXPECT_EQ(CountRecords(**store), 3);
      EXPECT_EQ((*store)->Append(OneRecord(4)), (*store)->damage());
    }
    EXPECT_EQ(ReadDirectory(copy), damaged);
  }
}

TEST(RocksDbStoreTest, DoesNotStartAnewWhereBatchesWereWritten) {
  const std::string directory = NewDirectory();
  ASSERT_TRUE(AppendAll(**OpenOrCreate(directory), 1, 4).ok());
  Files files;
  files["mark"] = ReadDirectory(directory)["mark"];
  files["lock"] = "";
  const std::string copy = WriteDirectory(files);
  const absl::Status status = OpenOrCreate(copy).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("3 were written"));
  EXPECT_EQ(ReadDirectory(copy), files);
}

TEST(RocksDbStoreTest, NoticesADamagedTable) {
  const std::string directory = NewDirectory();
  ASSERT_TRUE(AppendAll(**OpenOrCreate(directory), 1, 4).ok());
  { ASSERT_TRUE(OpenOrCreate(directory).ok()); }  // Makes a table.
  Files files = ReadDirectory(directory);
  std::string& table = files[FindName(files, ".sst")];
  table.replace(0, 64, 64, '\0');  // Its first block: all rows.
  const std::string copy = WriteDirectory(files);
  {
    const auto store = OpenOrCreate(copy);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->damage().code(), StatusCode::kDataLoss);
    EXPECT_EQ((*store)->Append(OneRecord(4)), (*store)->damage());
    EXPECT_EQ((*store)->Scan("a", 0, 9).status().code(), StatusCode::kDataLoss);
  }
  EXPECT_EQ(ReadDirectory(copy), files);
}

// RocksDB's files on a disk that refuses calls on demand.
class FaultyFiles : public rocksdb::FileSystemWrapper {
 public:
  FaultyFiles() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}

  const char* Name() const override { return "FaultyFiles"; }

  // The next `append_count` writes to logs write nothing and the next
  // `sync_count` syncs of logs sync nothing; while `refuses_open` no file can
  // be made.
  void Fail(rocksdb::IOStatus error, int append_count, int sync_count,
            bool refuses_open) {
    error_ = std::move(error);
    append_count_ = append_count;
    sync_count_ = sync_count;
    refuses_open_ = refuses_open;
  }

  // Syncs do nothing, for tests that measure space.
  void SkipSyncs() { skips_syncs_ = true; }

  rocksdb::IOStatus NewWritableFile(
      const std::string& path, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSWritableFile>* file,
      rocksdb::IODebugContext* debug) override {
    if (refuses_open_) return error_;
    const rocksdb::IOStatus status =
        FileSystemWrapper::NewWritableFile(path, options, file, debug);
    if (status.ok() && path.ends_with(".log")) {
      *file = std::make_unique<File>(std::move(*file), *this);
    }
    return status;
  }

 private:
  class File : public rocksdb::FSWritableFileOwnerWrapper {
   public:
    File(std::unique_ptr<rocksdb::FSWritableFile> file, FaultyFiles& files)
        : FSWritableFileOwnerWrapper(std::move(file)), files_(files) {}

    using FSWritableFileOwnerWrapper::Append;
    rocksdb::IOStatus Append(const rocksdb::Slice& data,
                             const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override {
      if (files_.append_count_ > 0 && files_.append_count_-- > 0) {
        return files_.error_;
      }
      return FSWritableFileOwnerWrapper::Append(data, options, debug);
    }
    rocksdb::IOStatus Sync(const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* debug) override {
      if (files_.skips_syncs_) return rocksdb::IOStatus::OK();
      if (files_.sync_count_ > 0 && files_.sync_count_-- > 0) {
        return files_.error_;
      }
      return FSWritableFileOwnerWrapper::Sync(options, debug);
    }

   private:
    FaultyFiles& files_;
  };

  rocksdb::IOStatus error_;
  std::atomic<int> append_count_ = 0;
  std::atomic<int> sync_count_ = 0;
  std::atomic<bool> refuses_open_ = false;
  std::atomic<bool> skips_syncs_ = false;
};

struct DiskError {
  std::string name;
  rocksdb::IOStatus error;
  StatusCode code;
};

std::vector<DiskError> DiskErrors() {
  rocksdb::IOStatus no_space = rocksdb::IOStatus::NoSpace("No space left");
  no_space.SetRetryable(true);
  return {
      {"EIO", rocksdb::IOStatus::IOError("Input/output error"),
       StatusCode::kUnavailable},
      {"ENOSPC", no_space, StatusCode::kResourceExhausted},
      {"EDQUOT", rocksdb::IOStatus::IOError("Disk quota exceeded"),
       StatusCode::kResourceExhausted},
      {"EMFILE", rocksdb::IOStatus::IOError("Too many open files"),
       StatusCode::kUnavailable},
      {"ENOMEM", rocksdb::IOStatus::IOError("Cannot allocate memory"),
       StatusCode::kUnavailable},
  };
}

// Calls as the event loop does after an error: reads, then appends what
// follows. Returns the number of tries until an Append succeeds.
int AppendAfterError(Store& store) {
  for (int tries = 1; tries < 50; ++tries) {
    const auto records = store.Scan("a", 0, 1 << 20);
    if (!records.ok()) continue;
    const int64_t count = static_cast<int64_t>(records->size());
    if (store.Append(OneRecord(count + 1)).ok()) return tries;
  }
  return 50;
}

TEST(RocksDbStoreTest, ServesAgainAfterADiskErrorWithoutARestart) {
  for (const DiskError& disk : DiskErrors()) {
    // Also with a batch that reached the log, and as the first one after open.
    for (const bool fails_at_sync : {false, true}) {
      for (const int64_t known : {0, 3}) {
        SCOPED_TRACE(disk.name + (fails_at_sync ? " at sync, " : ", ") +
                     std::to_string(known));
        const std::string directory = NewDirectory();
        const auto files = std::make_shared<FaultyFiles>();
        {
          auto store = OpenOrCreate(directory, PosixFileSystem(), files);
          ASSERT_TRUE(store.ok()) << store.status();
        }
        auto store = OpenOrCreate(directory, PosixFileSystem(), files);
        ASSERT_TRUE(store.ok()) << store.status();
        ASSERT_TRUE(AppendAll(**store, 1, known + 1).ok());
        files->Fail(disk.error, fails_at_sync ? 0 : 1, fails_at_sync ? 1 : 0,
                    false);
        const absl::Status failed = (*store)->Append(OneRecord(known + 1));
        EXPECT_EQ(failed.code(), disk.code) << failed;
        EXPECT_LE(AppendAfterError(**store), 3);
        const int64_t count = CountRecords(**store);
        EXPECT_EQ((*store)->index(), count);
        EXPECT_GE(count, known + 1);
        EXPECT_TRUE((*store)->damage().ok());
        ASSERT_TRUE((*store)->Append(OneRecord(count + 1)).ok());
        // All of it is there after a restart.
        store->reset();
        store = OpenOrCreate(directory, PosixFileSystem(), files);
        ASSERT_TRUE(store.ok()) << store.status();
        EXPECT_TRUE((*store)->damage().ok()) << (*store)->damage();
        EXPECT_EQ(CountRecords(**store), count + 1);
      }
    }
  }
}

TEST(RocksDbStoreTest, TriesAgainUntilTheDiskIsGood) {
  const auto files = std::make_shared<FaultyFiles>();
  auto store = OpenOrCreate(NewDirectory(), PosixFileSystem(), files);
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE(AppendAll(**store, 1, 4).ok());
  files->Fail(rocksdb::IOStatus::IOError("Input/output error"), 1000, 1000,
              true);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ((*store)->Append(OneRecord(4)).code(), StatusCode::kUnavailable);
    EXPECT_EQ((*store)->Scan("a", 0, 9).status().code(),
              StatusCode::kUnavailable);
  }
  files->Fail(rocksdb::IOStatus::OK(), 0, 0, false);
  EXPECT_LE(AppendAfterError(**store), 2);
  EXPECT_GE(CountRecords(**store), 4);
}

TEST(RocksDbStoreTest, OpensAgainOnlyOnceAllReadersHaveLeft) {
  const auto files = std::make_shared<FaultyFiles>();
  const auto database = LogDatabase::Open(NewDirectory(), PosixFileSystem(),
                                          files, LogDatabase::Mode::kCreate);
  ASSERT_TRUE(database.ok()) << database.status();
  auto reader = *(*database)->Get();
  files->Fail(rocksdb::IOStatus::IOError("Input/output error"), 1, 0, false);
  {
    const auto db = *(*database)->GetForWrite();
    rocksdb::WriteBatch batch;
    EXPECT_EQ((*database)->Write(*db, batch).code(), StatusCode::kUnavailable);
  }
  EXPECT_EQ((*database)->Get().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ((*database)->GetForWrite().status().code(),
            StatusCode::kUnavailable);
  reader.reset();
  EXPECT_TRUE((*database)->Get().ok());
  EXPECT_TRUE((*database)->GetForWrite().ok());
}

// The mark's files, whose writes fail on demand.
class FaultyMark : public ForwardingFileSystem {
 public:
  FaultyMark() : ForwardingFileSystem(PosixFileSystem()) {}

  int error_number = 0;
  bool skips_syncs = false;

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenWritable(
      const std::string& path, bool is_private) override {
    auto file = ForwardingFileSystem::OpenWritable(path, is_private);
    if (!file.ok()) return file;
    return std::make_unique<File>(*std::move(file), *this);
  }

 private:
  class File : public ForwardingFile {
   public:
    File(std::unique_ptr<RandomAccessFile> file, const FaultyMark& mark)
        : ForwardingFile(std::move(file)), mark_(mark) {}
    absl::Status WriteAt(int64_t offset,
                         absl::Span<const absl::string_view> pieces) override {
      if (mark_.error_number != 0) {
        return ErrnoToStatus(mark_.error_number, "write mark");
      }
      return ForwardingFile::WriteAt(offset, pieces);
    }
    absl::Status Sync() override {
      return mark_.skips_syncs ? absl::OkStatus() : ForwardingFile::Sync();
    }

   private:
    const FaultyMark& mark_;
  };
};

TEST(RocksDbStoreTest, FailsAnAppendWhoseMarkIsNotWritten) {
  const std::string directory = NewDirectory();
  FaultyMark files;
  auto store = OpenOrCreate(directory, files);
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE(AppendAll(**store, 1, 4).ok());
  files.error_number = EIO;
  EXPECT_EQ((*store)->Append(OneRecord(4)).code(), StatusCode::kUnavailable);
  EXPECT_EQ((*store)->index(), CountRecords(**store));
  files.error_number = ENOSPC;
  EXPECT_EQ((*store)->Append(OneRecord(CountRecords(**store) + 1)).code(),
            StatusCode::kResourceExhausted);
  files.error_number = 0;
  EXPECT_TRUE((*store)->Append(OneRecord(CountRecords(**store) + 1)).ok());
  const int64_t count = CountRecords(**store);
  store->reset();
  store = OpenOrCreate(directory, files);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE((*store)->damage().ok()) << (*store)->damage();
  EXPECT_EQ((*store)->index(), count);
}

// Bytes that no compression makes fewer.
std::string RandomBytes(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(count, '\0');
  for (size_t at = 0; at + 8 <= count; at += 8) {
    const uint64_t number = random();
    std::memcpy(bytes.data() + at, &number, 8);
  }
  return bytes;
}

class SpaceTest : public testing::Test {
 protected:
  SpaceTest() : files_(std::make_shared<FaultyFiles>()) {
    files_->SkipSyncs();
    mark_files_.skips_syncs = true;
    auto store = OpenOrCreate(directory_, mark_files_, files_);
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  int64_t MeasureBytes() const {
    int64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      std::error_code error;  // RocksDB removes files concurrently.
      const uintmax_t size = std::filesystem::file_size(entry.path(), error);
      if (!error) bytes += static_cast<int64_t>(size);
    }
    return bytes;
  }

  const std::string directory_ = NewDirectory();
  FaultyMark mark_files_;
  const std::shared_ptr<FaultyFiles> files_;
  std::unique_ptr<RocksDbStore> store_;
};

TEST_F(SpaceTest, DeletedRunsLeaveNoneBehind) {
  int64_t bytes_after_200 = 0;
  for (int i = 1; i <= 2000; ++i) {
    // About 20 KiB a run; the next run's batch deletes it.
    Batch batch;
    if (i > 1) batch.deleted_runs.push_back("run-" + std::to_string(i - 1));
    const std::string run_id = "run-" + std::to_string(i);
    for (int64_t number = 1; number <= 80; ++number) {
      LogEntry entry = OneRecord(number).entries[0];
      entry.run_id = run_id;
      batch.entries.push_back(std::move(entry));
      batch.history.push_back({run_id, HistoryTable::kRounds, number,
                               RandomBytes(250, i + number)});
    }
    ASSERT_TRUE(store_->Append(batch).ok());
    if (i == 200) bytes_after_200 = MeasureBytes();
  }
  EXPECT_LE(MeasureBytes(), bytes_after_200 + bytes_after_200 / 20 + (8 << 20))
      << bytes_after_200;
  EXPECT_EQ(store_->ListLogs()->size(), 1u);
}

TEST_F(SpaceTest, ALargeDeletedRunLeavesNoneBehindInAQuietStore) {
  for (int64_t row = 0; row < 40; ++row) {
    Batch batch = OneRecord(row + 1);
    batch.history.push_back(
        {"a", HistoryTable::kRounds, row, RandomBytes(1 << 20, row)});
    ASSERT_TRUE(store_->Append(batch).ok());
  }
  ASSERT_GT(MeasureBytes(), 30 << 20);
  Batch deletion;
  deletion.deleted_runs = {"a"};
  ASSERT_TRUE(store_->Append(deletion).ok());
  // The store does it in the background; the test's time limit bounds the wait.
  while (MeasureBytes() > 10 << 20) std::this_thread::yield();
}

TEST_F(SpaceTest, TrimsLeaveNoneBehind) {
  int64_t bytes_after_500 = 0;
  for (int64_t row = 1; row <= 5000; ++row) {
    Batch batch = OneRecord(row);
    batch.history.push_back(
        {"a", HistoryTable::kRounds, row, RandomBytes(10'000, row)});
    batch.trims.push_back({"a", HistoryTable::kRounds, row - 20});
    ASSERT_TRUE(store_->Append(batch).ok());
    if (row == 500) bytes_after_500 = MeasureBytes();
  }
  EXPECT_LE(MeasureBytes(), bytes_after_500 + (24 << 20)) << bytes_after_500;
}

}  // namespace
}  // namespace atl::coordinator
