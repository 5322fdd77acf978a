#include "server/store/records/log_record_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/io/files.h"
#include "base/obs/log.h"
#include "base/random_id/random_id.h"
#include "base/status/expected.h"
#include "base/status/status_macros.h"
#include "server/store/records/record_frame.h"

namespace atl::server {
namespace {

constexpr char kMarkName[] = "mark";
constexpr absl::string_view kLogSuffix = ".log";
constexpr absl::string_view kTemporarySuffix = ".tmp";

// A sync of bytes with reserved space need not change the file's size, and does
// not find the disk full.
constexpr int64_t kReserveBytes = 256 << 10;
// A log that is larger, and larger than kGarbageFactor times its records, is
// replaced.
constexpr int64_t kCompactBytesMin = 1 << 20;
constexpr int64_t kGarbageFactor = 4;
constexpr size_t kSnapshotFrameBytes = 1 << 20;
constexpr int64_t kLogBytesMax = int64_t{1} << 40;

// The number of a log by its file name; 0 for other files.
int64_t ParseLogName(absl::string_view name) {
  int64_t number = 0;
  if (!absl::ConsumeSuffix(&name, kLogSuffix) || name.size() < 6 ||
      !absl::SimpleAtoi(name, &number)) {
    return 0;
  }
  return number;
}

uint64_t MakeFileId() {
  const std::string bytes = absl::HexStringToBytes(RandomId());
  uint64_t id;
  std::memcpy(&id, bytes.data(), sizeof(id));
  return id;
}

std::string EncodeMark(uint64_t seq) {
  std::string value(sizeof(seq), '\0');
  std::memcpy(value.data(), &seq, sizeof(seq));
  return value;
}

// The newest frame that the mark knows to be synced; 0 without a whole mark.
uint64_t ReadMark(FileSystem& fs, const std::string& path) {
  const absl::StatusOr<std::string> value = SlotFile::Read(fs, path);
  uint64_t seq = 0;
  if (value.ok() && value->size() == sizeof(seq)) {
    std::memcpy(&seq, value->data(), sizeof(seq));
  }
  return seq;
}

// True for ENOSPC and EDQUOT. Other errors with the same code are no matter of
// space on the disk: a limit on the file's size, on open files, on memory.
bool IsDiskFull(const absl::Status& status) {
  if (!absl::IsResourceExhausted(status)) return false;
  for (const int other : {EFBIG, EMFILE, ENFILE, ENOMEM}) {
    if (absl::EndsWith(status.message(),
                       std::generic_category().message(other))) {
      return false;
    }
  }
  return true;
}

}  // namespace

// The newest log of a directory.
struct LogRecordStore::Found {
  int64_t number = 0;  // 0: there is none.
  std::string bytes;
  LogScan scan;  // Points into `bytes`, which are on the heap.
  uint64_t synced_seq = 0;
  std::vector<std::string> others;  // Names of files that are not needed.
  absl::Status damage;
};

absl::StatusOr<LogRecordStore::Found> LogRecordStore::Load(
    FileSystem& fs, const std::string& directory) {
  Found found;
  // Not Exists, which a disk that fails answers with no.
  const absl::StatusOr<std::vector<std::string>> names = fs.List(directory);
  if (absl::IsNotFound(names.status())) return found;
  RETURN_IF_ERROR(names.status());
  std::string log;
  for (const std::string& name : *names) {
    const int64_t number = ParseLogName(name);
    if (number > found.number) {
      if (!log.empty()) found.others.push_back(log);
      found.number = number;
      log = name;
    } else if (number > 0 ||
               ParseLogName(absl::StripSuffix(name, kTemporarySuffix)) > 0) {
      found.others.push_back(name);
    }
  }
  const uint64_t marked =
      ReadMark(fs, absl::StrCat(directory, "/", kMarkName));
  if (found.number == 0) {
    if (marked > 0) {
      found.damage = absl::DataLossError(absl::StrCat(
          directory, " has no log, and ", marked, " records were synced"));
    }
    return found;
  }
  const std::string path = absl::StrCat(directory, "/", log);
  ASSIGN_OR_RETURN(found.bytes, ReadFile(fs, path, kLogBytesMax));
  found.scan = ScanLog(found.bytes);
  const LogScan& scan = found.scan;
  found.synced_seq = std::max(marked, scan.synced_seq);
  const uint64_t next = scan.last_seq() + 1;
  if (!scan.has_snapshot) {
    // A log has its name only after its snapshot was synced.
    found.damage = absl::DataLossError(absl::StrCat(
        path, ": record ", next, " is damaged, in the log's snapshot",
        found.synced_seq >= next
            ? absl::StrCat("; ", found.synced_seq, " were synced")
            : ""));
  } else if (found.synced_seq >= next) {
    found.damage = WithExpected(
        absl::DataLossError(absl::StrCat(path, ": record ", next,
                                         " is damaged, ", found.synced_seq,
                                         " were synced")),
        absl::StrCat(found.synced_seq, " synced records"));
  }
  for (const RecordFrame& frame : scan.frames) {
    if (found.damage.ok() && !DecodeBatch(frame.payload)) {
      found.damage = absl::DataLossError(
          absl::StrCat(path, ": record ", frame.seq, " does not parse"));
    }
  }
  return found;
}

absl::StatusOr<std::unique_ptr<LogRecordStore>> LogRecordStore::Open(
    FileSystem& fs, const std::string& directory) {
  ASSIGN_OR_RETURN(const Found found, Load(fs, directory));
  RETURN_IF_ERROR(found.damage);
  std::unique_ptr<LogRecordStore> store(
      new LogRecordStore(fs, directory, absl::OkStatus()));
  RETURN_IF_ERROR(fs.CreateDirectories(directory));
  // A process that died may have named the log and not synced the name.
  if (found.number > 0) RETURN_IF_ERROR(fs.SyncDirectory(directory));
  for (const std::string& name : found.others) {
    fs.Remove(absl::StrCat(directory, "/", name)).IgnoreError();
  }
  const std::string mark_path = absl::StrCat(directory, "/", kMarkName);
  MutexLock lock(&store->mutex_);
  absl::StatusOr<std::unique_ptr<SlotFile>> mark =
      SlotFile::Open(fs, mark_path);
  if (!mark.ok()) {
    mark = SlotFile::Create(fs, mark_path, EncodeMark(found.synced_seq));
  }
  RETURN_IF_ERROR(mark.status());
  store->mark_ = *std::move(mark);
  store->ApplyFrames(found);
  if (found.number == 0) {
    RETURN_IF_ERROR(store->StartLog(1));
  } else {
    RETURN_IF_ERROR(store->Resume(found));
  }
  return store;
}

absl::StatusOr<std::unique_ptr<LogRecordStore>> LogRecordStore::OpenDamaged(
    FileSystem& fs, const std::string& directory) {
  ASSIGN_OR_RETURN(const Found found, Load(fs, directory));
  if (found.damage.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory, " is not damaged"));
  }
  std::unique_ptr<LogRecordStore> store(
      new LogRecordStore(fs, directory, found.damage));
  MutexLock lock(&store->mutex_);
  store->ApplyFrames(found);
  return store;
}

LogRecordStore::LogRecordStore(FileSystem& fs, std::string directory,
                               absl::Status damage)
    : fs_(fs),
      directory_(std::move(directory)),
      damage_(damage),
      failure_(std::move(damage)) {}

std::string LogRecordStore::LogPath(int64_t number) const {
  return absl::StrFormat("%s/%06d%s", directory_, number, kLogSuffix);
}

void LogRecordStore::ApplyFrames(const Found& found) {
  for (const RecordFrame& frame : found.scan.frames) {
    const std::optional<RecordBatch> batch = DecodeBatch(frame.payload);
    if (!batch) return;
    records_.Apply(*batch);
  }
}

absl::Status LogRecordStore::Resume(const Found& found) {
  const LogScan& scan = found.scan;
  const std::string path = LogPath(found.number);
  ASSIGN_OR_RETURN(file_, fs_.OpenForWrite(path));
  number_ = found.number;
  file_id_ = scan.frames[0].file_id;
  end_ = scan.end;
  reserved_ = static_cast<int64_t>(found.bytes.size());
  last_seq_ = scan.last_seq();
  int64_t unproven = scan.end;
  for (auto frame = scan.frames.rbegin();
       frame != scan.frames.rend() && frame->seq > found.synced_seq &&
       !(frame->flags & RecordFrame::kSnapshot);
       ++frame) {
    unproven = frame->payload.data() - RecordFrame::kHeaderBytes -
               found.bytes.data();
  }
  if (unproven < scan.end || scan.has_tail) {
    if (scan.has_tail) {
      LOG(WARNING) << path << ": the end was not synced and is torn; record "
                   << last_seq_ << " is the last one";
    }
    // Frames that nobody synced are written again: after a sync that failed the
    // system may have them in memory only. The torn end becomes zero, so that
    // no frame in it ever follows a new one.
    std::string bytes = found.bytes.substr(unproven);
    std::fill(bytes.begin() + (scan.end - unproven), bytes.end(), '\0');
    RETURN_IF_ERROR(file_->WriteAt(unproven, bytes));
    RETURN_IF_ERROR(file_->Sync());
  }
  synced_seq_ = last_seq_;
  WriteMark();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> LogRecordStore::WriteSnapshot(RandomAccessFile& file,
                                                      uint64_t file_id) {
  RecordFrame frame;
  frame.seq = last_seq_;
  frame.synced_seq = synced_seq_;
  frame.file_id = file_id;
  int64_t end = 0;
  RecordBatch batch;
  size_t batch_bytes = 0;
  const auto flush = [&](uint32_t flags) -> absl::Status {
    const std::string payload = EncodeBatch(batch);
    frame.flags = flags;
    ++frame.seq;
    frame.payload = payload;
    RETURN_IF_ERROR(file.WriteAt(end, EncodeFrame(frame)));
    end += frame.byte_count();
    batch = RecordBatch();
    batch_bytes = 0;
    return absl::OkStatus();
  };
  for (const auto& [name, value] : records_.records()) {
    if (batch_bytes >= kSnapshotFrameBytes) {
      RETURN_IF_ERROR(flush(RecordFrame::kSnapshot));
    }
    batch.Put(name, value);
    batch_bytes += name.size() + value.size();
  }
  RETURN_IF_ERROR(flush(RecordFrame::kSnapshot | RecordFrame::kSnapshotEnd));
  RETURN_IF_ERROR(file.Sync());
  last_seq_ = frame.seq;
  return end;
}

absl::Status LogRecordStore::StartLog(int64_t number) {
  const std::string path = LogPath(number);
  const std::string temporary = absl::StrCat(path, kTemporarySuffix);
  const uint64_t file_id = MakeFileId();
  const uint64_t seq_before = last_seq_;
  if (fs_.Exists(temporary)) RETURN_IF_ERROR(fs_.Remove(temporary));
  ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file,
                   fs_.OpenForWrite(temporary));
  const absl::StatusOr<int64_t> end = WriteSnapshot(*file, file_id);
  if (!end.ok()) {
    // Best effort: the next open removes it too.
    fs_.Remove(temporary).IgnoreError();
    return end.status();
  }
  absl::Status named = fs_.Rename(temporary, path);
  if (IsDiskFull(named)) {
    // The name is not made: a full disk is no reason to stop.
    last_seq_ = seq_before;
    fs_.Remove(temporary).IgnoreError();
    return named;
  }
  if (named.ok()) named = fs_.SyncDirectory(directory_);
  if (named.ok()) {
    // The open file would name the temporary one in its errors.
    absl::StatusOr<std::unique_ptr<RandomAccessFile>> again =
        fs_.OpenForWrite(path);
    if (again.ok()) file = *std::move(again);
  } else {
    // Either log may be the one that the next open finds.
    failure_ = absl::DataLossError(
        absl::StrCat("cannot write records: ", named.message()));
    return failure_;
  }
  const int64_t old_number = std::exchange(number_, number);
  file_ = std::move(file);
  file_id_ = file_id;
  end_ = *end;
  reserved_ = end_;
  synced_seq_ = last_seq_;
  WriteMark();
  if (old_number > 0) fs_.Remove(LogPath(old_number)).IgnoreError();
  return absl::OkStatus();
}

absl::Status LogRecordStore::Write(const RecordBatch& batch, Sync sync) {
  const std::string payload = EncodeBatch(batch);
  if (payload.size() > RecordFrame::kPayloadBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", payload.size(), " bytes is too large"));
  }
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  RETURN_IF_ERROR(Append(payload));
  records_.Apply(batch);
  if (sync == Sync::kMachine) RETURN_IF_ERROR(SyncTo(last_seq_));
  CompactIfDue();
  return absl::OkStatus();
}

absl::Status LogRecordStore::Append(const std::string& payload) {
  RecordFrame frame;
  frame.seq = last_seq_ + 1;
  frame.synced_seq = synced_seq_;
  frame.file_id = file_id_;
  frame.payload = payload;
  absl::Status written = MakeRoom(end_ + frame.byte_count());
  if (written.ok()) written = file_->WriteAt(end_, EncodeFrame(frame));
  if (!written.ok()) {
    const std::string text =
        absl::StrCat("cannot write records: ", written.message());
    if (IsDiskFull(written)) {
      // Whatever was written of the frame does not parse, until the next one
      // overwrites it.
      const std::string zeros(RecordFrame::kHeaderBytes, '\0');
      if (end_ < reserved_) file_->WriteAt(end_, zeros).IgnoreError();
      return absl::ResourceExhaustedError(text);
    }
    failure_ = absl::DataLossError(text);
    changed_.SignalAll();
    return failure_;
  }
  end_ += frame.byte_count();
  reserved_ = std::max(reserved_, end_);
  ++last_seq_;
  return absl::OkStatus();
}

absl::Status LogRecordStore::MakeRoom(int64_t size) {
  if (size <= reserved_) return absl::OkStatus();
  int64_t reserved = (size / kReserveBytes + 1) * kReserveBytes;
  absl::Status made = file_->Preallocate(reserved);
  if (IsDiskFull(made)) {
    reserved = size;
    made = file_->Preallocate(reserved);
  }
  if (made.ok()) reserved_ = reserved;
  return made;
}

absl::Status LogRecordStore::SyncTo(uint64_t seq) {
  while (synced_seq_ < seq) {
    RETURN_IF_ERROR(failure_);
    if (is_syncing_) {
      changed_.Wait(&mutex_);
      continue;
    }
    const uint64_t target = last_seq_;
    RandomAccessFile* const file = file_.get();
    is_syncing_ = true;
    mutex_.Unlock();
    const absl::Status synced = file->Sync();
    mutex_.Lock();
    is_syncing_ = false;
    if (synced.ok()) {
      synced_seq_ = target;
      WriteMark();
    } else if (failure_.ok()) {
      failure_ = absl::DataLossError(
          absl::StrCat("cannot write records: ", synced.message()));
    }
    changed_.SignalAll();
  }
  return absl::OkStatus();
}

void LogRecordStore::WriteMark() {
  // Without it a start only knows less.
  mark_->Write(EncodeMark(synced_seq_)).IgnoreError();
}

void LogRecordStore::CompactIfDue() {
  const auto is_due = [this] {
    mutex_.AssertHeld();
    return failure_.ok() && end_ >= compact_again_at_ &&
           end_ > std::max(kCompactBytesMin,
                           kGarbageFactor * records_.byte_count());
  };
  while (is_due() && is_syncing_) changed_.Wait(&mutex_);
  if (!is_due()) return;
  const absl::Status compacted = StartLog(number_ + 1);
  compact_again_at_ = compacted.ok() ? 0 : end_ + kCompactBytesMin;
  if (!compacted.ok()) {
    LOG(WARNING) << directory_ << ": the log of " << end_
                 << " bytes cannot be made smaller: " << compacted.message();
  }
}

absl::StatusOr<std::string> LogRecordStore::Get(absl::string_view name) const {
  MutexLock lock(&mutex_);
  return records_.Get(name);
}

absl::StatusOr<std::vector<RecordStore::Record>> LogRecordStore::Scan(
    absl::string_view prefix) const {
  MutexLock lock(&mutex_);
  return records_.Scan(prefix);
}

}  // namespace atl::server
