#include "coordinator/store/log_database.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/expected.h"
#include "base/status/status_macros.h"
#include "coordinator/store/recovery_view.h"
#include "coordinator/store/sealed_value.h"
#include "coordinator/store/store.h"
#include "rocksdb/iterator.h"
#include "rocksdb/listener.h"
#include "rocksdb/options.h"
#include "rocksdb/transaction_log.h"

namespace atl::coordinator {
namespace {

// RocksDB's warnings and errors as lines of our log. It must not use its own
// log file: after a failed write to it, as on a full disk, the library (7.8)
// aborts at its next write, at the latest on close.
class RocksDbLogger final : public rocksdb::Logger {
 public:
  RocksDbLogger() : Logger(rocksdb::InfoLogLevel::WARN_LEVEL) {}

  using Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    char text[512];
    std::vsnprintf(text, sizeof(text), format, arguments);
    LOG(WARNING) << "rocksdb: " << text;
  }
};

// RocksDB's own recovery from a full disk tries at most every few seconds, and
// refuses Resume meanwhile.
class NoRecoveryByItself : public rocksdb::EventListener {
 public:
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }
};

rocksdb::Options MakeOptions(rocksdb::Env& env) {
  rocksdb::Options options;
  options.env = &env;
  options.paranoid_checks = true;
  // A power cut tears the end of RocksDB's log anywhere. The recovery stops
  // there; the mark says whether synced batches lay behind it.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  // These bound the disk space of a short log: of RocksDB's own log, of tables
  // that wait for a compaction, and of the MANIFEST.
  options.write_buffer_size = 4 << 20;
  options.max_total_wal_size = 16 << 20;
  options.max_manifest_file_size = 1 << 20;
  options.max_open_files = 256;
  options.info_log = std::make_shared<RocksDbLogger>();
  options.listeners.push_back(std::make_shared<NoRecoveryByItself>());
  return options;
}

bool IsFull(const rocksdb::Status& status) {
  const std::string text = status.ToString();
  return status.IsNoSpace() || absl::StrContains(text, "No space left") ||
         absl::StrContains(text, "Disk quota exceeded");
}

bool CanResume(const rocksdb::Status& status) {
  return status.severity() < rocksdb::Status::Severity::kFatalError;
}

// The number of RocksDB's present log; -1 if it is unknown.
int64_t FindWal(rocksdb::DB& db) {
  std::unique_ptr<rocksdb::LogFile> file;
  if (!db.GetCurrentWalFile(&file).ok() || file == nullptr) return -1;
  return static_cast<int64_t>(file->LogNumber());
}

absl::StatusOr<int> LockDirectory(const std::string& directory) {
  const std::string path = directory + "/lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("open ", path));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    close(fd);
    if (error != EWOULDBLOCK) {
      return ErrnoToStatus(error, absl::StrCat("lock ", path));
    }
    return absl::FailedPreconditionError(
        absl::StrCat(directory,
                     " is in use by another process: stop it, or choose "
                     "another --data-dir"));
  }
  return fd;
}

}  // namespace

struct LogDatabase::Handle {
  std::unique_ptr<rocksdb::Env> env;
  std::unique_ptr<IndexFilter> filter;
  std::unique_ptr<rocksdb::DB> db;

  rocksdb::Status Open(rocksdb::Options options, const std::string& directory,
                       bool read_only) {
    options.wal_filter = filter.get();
    rocksdb::DB* raw = nullptr;
    const rocksdb::Status status =
        read_only ? rocksdb::DB::OpenForReadOnly(options, directory, &raw)
                  : rocksdb::DB::Open(options, directory, &raw);
    db.reset(raw);
    return status;
  }
};

struct LogDatabase::Found {
  std::optional<std::string> format;
  bool has_rows = false;
  int64_t index = 0;
  absl::Status unreadable;  // Why format or index cannot be read.
};

LogDatabase::LogDatabase(std::string directory, int lock_fd, FileSystem& files,
                         std::shared_ptr<rocksdb::FileSystem> database_files)
    : directory_(std::move(directory)),
      lock_fd_(lock_fd),
      files_(files),
      database_files_(std::move(database_files)) {}

LogDatabase::~LogDatabase() {
  {
    MutexLock lock(&mutex_);
    db_.reset();
  }
  if (lock_fd_ >= 0) close(lock_fd_);
}

absl::StatusOr<std::unique_ptr<LogDatabase>> LogDatabase::Open(
    const std::string& directory, FileSystem& files,
    std::shared_ptr<rocksdb::FileSystem> database_files, Mode mode) {
  if (mode == Mode::kCreate) {
    const bool is_new = !files.Exists(directory);
    absl::Status made = files.CreateDirectories(directory);
    if (made.ok() && is_new) {
      made = files.SyncDirectory(ParentDirectory(directory));
    }
    RETURN_IF_ERROR(
        Annotate(made, absl::StrCat("--data-dir: cannot make ", directory)));
  } else {
    RETURN_IF_ERROR(files.List(directory).status());
    if (!files.Exists(directory + "/CURRENT") &&
        !files.Exists(directory + "/mark")) {
      return absl::NotFoundError(
          absl::StrCat(directory, " has no coordinator's log"));
    }
  }
  int lock_fd = -1;
  if (mode != Mode::kRead) {
    ASSIGN_OR_RETURN(lock_fd, LockDirectory(directory));
  }
  std::unique_ptr<LogDatabase> database(
      new LogDatabase(directory, lock_fd, files, std::move(database_files)));
  MutexLock lock(&database->write_mutex_);
  ASSIGN_OR_RETURN(database->mark_, LogMark::Read(files, directory + "/mark"));
  RETURN_IF_ERROR(database->OpenHandle(mode));
  return database;
}

absl::StatusOr<std::unique_ptr<rocksdb::Env>> LogDatabase::MakeEnv() const {
  // RocksDB refuses a MANIFEST whose end is torn, and skips a page of zeros in
  // its middle. It gets the whole records before. If more than a torn end is
  // missing, the index tells: RocksDB deletes what a synced record of the
  // MANIFEST replaces only after that record.
  const auto current = ReadFile(files_, directory_ + "/CURRENT");
  if (absl::IsNotFound(current.status())) {
    return rocksdb::NewCompositeEnv(database_files_);
  }
  RETURN_IF_ERROR(current.status());
  const std::string name(absl::StripTrailingAsciiWhitespace(*current));
  const auto bytes = ReadFile(files_, absl::StrCat(directory_, "/", name));
  if (absl::IsNotFound(bytes.status())) {
    return rocksdb::NewCompositeEnv(database_files_);
  }
  RETURN_IF_ERROR(bytes.status());
  const int64_t size = MeasureWholeRecords(*bytes);
  if (size == 0 || size == static_cast<int64_t>(bytes->size())) {
    return rocksdb::NewCompositeEnv(database_files_);
  }
  return rocksdb::NewCompositeEnv(CutFile(database_files_, name, size));
}

absl::StatusOr<LogDatabase::Found> LogDatabase::Look(rocksdb::Env& env) {
  Handle handle;
  handle.filter = std::make_unique<IndexFilter>(std::nullopt);
  const rocksdb::Status opened =
      handle.Open(MakeOptions(env), directory_, /*read_only=*/true);
  if (!opened.ok()) return OpenError(opened);
  Found found;
  rocksdb::ReadOptions read;
  std::string value;
  rocksdb::Status status = handle.db->Get(read, kFormatKey, &value);
  if (status.ok()) found.format = value;
  if (status.IsCorruption()) {
    found.unreadable = ToStatus(status);
  } else if (!status.ok() && !status.IsNotFound()) {
    return OpenError(status);
  }
  int64_t table_index = 0;
  status = handle.db->Get(read, kIndexKey, &value);
  absl::string_view bytes;
  if (status.IsCorruption()) {
    found.unreadable = ToStatus(status);
  } else if (!status.ok() && !status.IsNotFound()) {
    return OpenError(status);
  } else if (status.ok() && (!Unseal(value, bytes) ||
                             !absl::SimpleAtoi(bytes, &table_index))) {
    found.unreadable = absl::DataLossError(
        absl::StrCat("the log's index in ", directory_, " is damaged"));
  }
  std::unique_ptr<rocksdb::Iterator> rows(handle.db->NewIterator(read));
  rows->SeekToFirst();
  found.has_rows = rows->Valid() || handle.filter->has_batches();
  if (handle.filter->format().has_value()) {
    found.format = handle.filter->format();
  }
  found.index = handle.filter->FindLast(table_index);
  return found;
}

absl::Status LogDatabase::CheckFormat(const Found& found) const {
  if (!found.unreadable.ok()) return absl::OkStatus();
  if (!found.format.has_value()) {
    if (!found.has_rows) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(directory_,
                     " holds a database that is not a coordinator's: choose "
                     "another --data-dir"));
  }
  int64_t format = 0;
  if (!absl::SimpleAtoi(*found.format, &format) || format < 1) {
    return absl::DataLossError(
        absl::StrCat(directory_, ": its format cannot be read"));
  }
  if (format != kStoreFormat) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory_, " has format ", format, ", not this program's ",
        kStoreFormat, ": use the program that wrote it"));
  }
  return absl::OkStatus();
}

absl::Status LogDatabase::CompareWithMark(const Found& found) const {
  constexpr char kNext[] =
      ". Restore the whole directory from its newest copy; nothing was "
      "deleted, and nothing is written";
  if (!found.unreadable.ok()) {
    return absl::DataLossError(absl::StrCat(found.unreadable.message(), kNext));
  }
  if (!mark_->index().has_value() && found.index > 0) {
    return absl::DataLossError(
        absl::StrCat("the log in ", directory_, " holds ", found.index,
                     " synced batches, but how many were written is unknown: ",
                     mark_->path(), " cannot be read", kNext));
  }
  const int64_t written = mark_->index().value_or(0);
  if (found.index < written) {
    return WithExpected(
        absl::DataLossError(absl::StrCat("the log in ", directory_, " holds ",
                                         found.index, " synced batches, but ",
                                         written, " were written", kNext)),
        absl::StrCat(written, " synced batches"));
  }
  return absl::OkStatus();
}

absl::Status LogDatabase::OpenHandle(Mode mode) {
  auto handle = std::make_shared<Handle>();
  ASSIGN_OR_RETURN(handle->env, MakeEnv());
  Found found;
  const bool exists = files_.Exists(directory_ + "/CURRENT");
  if (exists) {
    ASSIGN_OR_RETURN(found, Look(*handle->env));
    RETURN_IF_ERROR(CheckFormat(found));
  }
  const absl::Status damage = CompareWithMark(found);
  if (!damage.ok() && !exists) return damage;
  if (!exists && mode != Mode::kCreate) {
    return absl::NotFoundError(
        absl::StrCat(directory_, " has no coordinator's log"));
  }
  const bool reads_only = mode == Mode::kRead || !damage.ok();
  handle->filter = std::make_unique<IndexFilter>(
      found.unreadable.ok() ? found.index : INT64_MAX);
  rocksdb::Options options = MakeOptions(*handle->env);
  options.create_if_missing = !exists;
  const rocksdb::Status opened = handle->Open(options, directory_, reads_only);
  if (!opened.ok()) return damage.ok() ? OpenError(opened) : damage;
  if (!reads_only) {
    std::string index;
    const rocksdb::Status read =
        handle->db->Get(rocksdb::ReadOptions(), kIndexKey, &index);
    if (found.index > 0 &&
        (!read.ok() || index != Seal(absl::StrCat(found.index)))) {
      return absl::DataLossError(
          absl::StrCat(directory_, " has lost batches while it was opened"));
    }
    // The open has synced what it found.
    if (mark_->index().value_or(-1) < found.index) {
      RETURN_IF_ERROR(WriteMark(found.index));
    }
    if (!found.format.has_value()) {
      rocksdb::WriteBatch first;
      first.Put(kFormatKey, absl::StrCat(kStoreFormat));
      first.Put(kIndexKey, Seal(absl::StrCat(found.index)));
      rocksdb::WriteOptions write;
      write.sync = true;
      RETURN_IF_ERROR(ToStatus(handle->db->Write(write, &first)));
    }
  }
  MutexLock lock(&mutex_);
  db_ = std::shared_ptr<rocksdb::DB>(handle, handle->db.get());
  index_ = found.index;
  damage_ = damage;
  return absl::OkStatus();
}

absl::Status LogDatabase::OpenError(const rocksdb::Status& status) const {
  const std::string text = status.ToString();
  // A program without our lock may hold RocksDB's.
  if (absl::StrContains(text, "lock hold by") ||
      absl::StrContains(text, "While lock file")) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory_,
                     " is in use by another process: stop it, or choose "
                     "another --data-dir"));
  }
  if (status.IsIOError() && !status.IsPathNotFound()) return ToStatus(status);
  return absl::DataLossError(absl::StrCat(
      directory_, " cannot be opened as a coordinator's store: ", text,
      "; restore it from a copy"));
}

absl::Status LogDatabase::ToStatus(const rocksdb::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  const std::string text =
      absl::StrCat("the store in ", directory_, ": ", status.ToString());
  if (IsFull(status)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(text, "; free space on its disk"));
  }
  if (status.IsCorruption()) return absl::DataLossError(text);
  return absl::UnavailableError(text);
}

absl::Status LogDatabase::WriteMark(int64_t index) {
  const absl::Status status = mark_->Write(index);
  if (status.ok() || absl::IsResourceExhausted(status)) return status;
  return absl::UnavailableError(status.message());
}

void LogDatabase::Close() {
  MutexLock lock(&mutex_);
  closed_ = db_;
  db_.reset();
}

void LogDatabase::SetDamage(absl::Status damage) {
  MutexLock lock(&mutex_);
  damage_ = std::move(damage);
}

absl::StatusOr<std::shared_ptr<rocksdb::DB>> LogDatabase::Reopen() {
  {
    MutexLock lock(&mutex_);
    if (!closed_.expired()) {
      return absl::UnavailableError(
          absl::StrCat("the store in ", directory_,
                       " opens again once all have left it: call again"));
    }
  }
  failed_wal_.reset();
  const absl::Status opened = OpenHandle(Mode::kOpen);
  // The last reader may not have closed the old one yet.
  if (absl::IsFailedPrecondition(opened)) {
    return absl::UnavailableError(opened.message());
  }
  RETURN_IF_ERROR(opened);
  LOG(WARNING) << "opened the store in " << directory_ << " again, with "
               << index() << " batches";
  return Peek();
}

std::shared_ptr<rocksdb::DB> LogDatabase::Peek() const {
  MutexLock lock(&mutex_);
  return db_;
}

absl::StatusOr<std::shared_ptr<rocksdb::DB>> LogDatabase::Get() {
  std::shared_ptr<rocksdb::DB> db = Peek();
  if (db != nullptr) return db;
  MutexLock lock(&write_mutex_);
  db = Peek();
  if (db != nullptr) return db;
  return Reopen();
}

absl::StatusOr<std::shared_ptr<rocksdb::DB>> LogDatabase::GetForWrite() {
  MutexLock lock(&write_mutex_);
  RETURN_IF_ERROR(damage());
  const int64_t known_index = index();
  std::shared_ptr<rocksdb::DB> db = Peek();
  if (db != nullptr) {
    // After a disk error RocksDB refuses writes until Resume.
    const rocksdb::Status resumed = db->Resume();
    if (resumed.ok()) {
      // Resume drops a torn batch if it begins a new log.
      const int64_t wal = failed_wal_.has_value() ? FindWal(*db) : 0;
      if (!failed_wal_ ||
          (wal != -1 && *failed_wal_ != -1 && wal != *failed_wal_)) {
        failed_wal_.reset();
        return db;
      }
    } else if (resumed.IsCorruption()) {
      SetDamage(ToStatus(resumed));
      return damage();
    } else if (resumed.IsBusy() || (IsFull(resumed) && CanResume(resumed))) {
      return ToStatus(resumed);
    }
    Close();
    db.reset();
  }
  ASSIGN_OR_RETURN(db, Reopen());
  RETURN_IF_ERROR(damage());
  if (index() != known_index) {
    return absl::UnavailableError(absl::StrCat(
        "the store in ", directory_, " was opened again and holds ", index(),
        " batches, not ", known_index, ": read it again"));
  }
  return db;
}

absl::Status LogDatabase::Write(rocksdb::DB& db, rocksdb::WriteBatch& batch) {
  MutexLock lock(&write_mutex_);
  const int64_t next_index = index() + 1;
  batch.Put(kIndexKey, Seal(absl::StrCat(next_index)));
  rocksdb::WriteOptions options;
  options.sync = true;
  const rocksdb::Status written = db.Write(options, &batch);
  if (!written.ok()) {
    if (written.IsCorruption()) {
      SetDamage(ToStatus(written));
    } else if (IsFull(written)) {
      // Readers keep the database while the disk is full.
      failed_wal_ = FindWal(db);
    } else {
      Close();
    }
    return ToStatus(written);
  }
  {
    MutexLock index_lock(&mutex_);
    index_ = next_index;
  }
  return WriteMark(next_index);
}

absl::Status LogDatabase::JumpTo(int64_t index) {
  ASSIGN_OR_RETURN(const std::shared_ptr<rocksdb::DB> db, GetForWrite());
  MutexLock lock(&write_mutex_);
  rocksdb::WriteBatch batch;
  batch.Put(kIndexKey, Seal(absl::StrCat(index)));
  rocksdb::WriteOptions options;
  options.sync = true;
  // In RocksDB's log the jump would be a gap, which is lost batches. In the
  // tables it is not. An open before the flush drops it.
  rocksdb::Status status = db->Write(options, &batch);
  if (status.ok()) status = db->Flush(rocksdb::FlushOptions());
  RETURN_IF_ERROR(ToStatus(status));
  {
    MutexLock index_lock(&mutex_);
    index_ = index;
  }
  return WriteMark(index);
}

int64_t LogDatabase::index() const {
  MutexLock lock(&mutex_);
  return index_;
}

absl::Status LogDatabase::damage() const {
  MutexLock lock(&mutex_);
  return damage_;
}

}  // namespace atl::coordinator
