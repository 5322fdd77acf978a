#include "worker/data/fetch/shard_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/io/files.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl::worker {
namespace {

constexpr char kPartEnd[] = ".part";
// Tries to lock a name that others rename or remove at the same time.
constexpr int kLockTries = 10;

// Returns whether `path` still names the open file.
bool IsNamed(int fd, const std::string& path) {
  struct stat open = {}, named = {};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

struct Entry {
  std::string path;
  int64_t size_bytes = 0;
  timespec last_use = {};
};

// True for what a cache names its files and parts: nothing else is its own, even
// in a directory that holds other files.
bool IsEntryName(absl::string_view directory, absl::string_view file) {
  absl::ConsumeSuffix(&file, kPartEnd);
  return directory.size() == 2 && file.size() == 64 &&
         absl::StartsWith(file, directory) &&
         std::all_of(file.begin(), file.end(), [](unsigned char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

// All files and parts, the least recently used first.
std::vector<Entry> ListEntries(FileSystem& files,
                               const std::string& directory) {
  std::vector<Entry> entries;
  for (const std::string& name :
       files.List(directory).value_or(std::vector<std::string>())) {
    if (name.size() != 2) continue;
    const std::string below = absl::StrCat(directory, "/", name);
    for (const std::string& file :
         files.List(below).value_or(std::vector<std::string>())) {
      if (!IsEntryName(name, file)) continue;
      Entry entry;
      entry.path = absl::StrCat(below, "/", file);
      struct stat status = {};
      if (::lstat(entry.path.c_str(), &status) != 0 ||
          !S_ISREG(status.st_mode)) {
        continue;
      }
      entry.size_bytes = status.st_size;
      entry.last_use = status.st_mtim;
      entries.push_back(std::move(entry));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.last_use.tv_sec, a.last_use.tv_nsec) <
           std::pair(b.last_use.tv_sec, b.last_use.tv_nsec);
  });
  return entries;
}

// Removes a file that is not in use. False: it is in use, or already gone.
bool RemoveUnused(FileSystem& files, const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd.valid() && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 &&
         IsNamed(fd.get(), path) && files.Remove(path).ok();
}

}  // namespace

std::string PartFile::part_path() const {
  return absl::StrCat(path_, kPartEnd);
}

absl::StatusOr<bool> PartFile::TryLock() {
  const std::string path = part_path();
  locked_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!locked_.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("open ", path));
  }
  if (::flock(locked_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      return ErrnoToStatus(errno, absl::StrCat("lock ", path));
    }
    return absl::UnavailableError(
        absl::StrCat("another process writes ", path));
  }
  return IsNamed(locked_.get(), path);
}

// Hashes the bytes that an earlier writer left.
absl::Status PartFile::HashRest() {
  sha_.emplace();
  std::string buffer(1 << 20, '\0');
  while (true) {
    ASSIGN_OR_RETURN(const int64_t got,
                     out_->ReadAt(size_bytes_, absl::MakeSpan(buffer)));
    if (got == 0) break;
    sha_->Update(absl::string_view(buffer.data(), got));
    size_bytes_ += got;
  }
  return size_bytes_ <= file_.size_bytes ? absl::OkStatus() : Restart();
}

absl::Status PartFile::Append(absl::string_view bytes) {
  RETURN_IF_ERROR(out_->WriteAt(size_bytes_, bytes));
  sha_->Update(bytes);
  size_bytes_ += static_cast<int64_t>(bytes.size());
  return absl::OkStatus();
}

absl::Status PartFile::Restart() {
  if (::ftruncate(locked_.get(), 0) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("truncate ", part_path()));
  }
  size_bytes_ = 0;
  sha_.emplace();
  return absl::OkStatus();
}

absl::Status PartFile::Check() {
  const std::string is = codec::ToHex(sha_->Finish());
  if (size_bytes_ == file_.size_bytes && is == file_.sha256) {
    return absl::OkStatus();
  }
  const int64_t got_bytes = size_bytes_;
  RETURN_IF_ERROR(Restart());
  return absl::DataLossError(absl::StrCat(
      got_bytes, " bytes came with the SHA-256 ", is,
      ", but the manifest says ", file_.size_bytes, " and ", file_.sha256));
}

absl::StatusOr<std::shared_ptr<const DataFileReader>> PartFile::Commit() {
  RETURN_IF_ERROR(out_->Sync());
  RETURN_IF_ERROR(files_.Rename(part_path(), path_));
  RETURN_IF_ERROR(files_.SyncDirectory(ParentDirectory(path_)));
  // The lock becomes that of a reader.
  if (::flock(locked_.get(), LOCK_SH | LOCK_NB) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("lock ", path_));
  }
  return std::make_shared<const DataFileReader>(std::move(locked_), path_);
}

absl::StatusOr<std::unique_ptr<ShardCache>> ShardCache::Open(
    std::string directory, int64_t bytes_max, FileSystem& files) {
  RETURN_IF_ERROR(files.CreateDirectories(directory));
  return std::unique_ptr<ShardCache>(
      new ShardCache(std::move(directory), bytes_max, files));
}

std::string ShardCache::PathOf(const ManifestFile& file) const {
  return absl::StrCat(directory_, "/", file.sha256.substr(0, 2), "/",
                      file.sha256);
}

absl::StatusOr<std::shared_ptr<const DataFileReader>> ShardCache::Find(
    const ManifestFile& file) {
  const std::string path = PathOf(file);
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno == ENOENT) return nullptr;
    return ErrnoToStatus(errno, absl::StrCat("open ", path));
  }
  // An exclusive lock is short: it renames or removes the file.
  struct stat status = {};
  if (::flock(fd.get(), LOCK_SH | LOCK_NB) != 0 || !IsNamed(fd.get(), path) ||
      ::fstat(fd.get(), &status) != 0) {
    return nullptr;
  }
  ::futimens(fd.get(), nullptr);  // A failure costs only the order of removal.
  const auto reader =
      std::make_shared<const DataFileReader>(std::move(fd), path);
  absl::StatusOr<std::string> sha256 =
      status.st_size == file.size_bytes
          ? reader->ComputeSha256(file.size_bytes)
          : absl::DataLossError("it has another size");
  if (sha256.ok() && *sha256 == file.sha256) return reader;
  LOG(WARNING) << "cached data file " << path << " is damaged and is removed: "
               << (sha256.ok() ? "its SHA-256 differs"
                               : sha256.status().message());
  RETURN_IF_ERROR(files_.Remove(path));
  return nullptr;
}

absl::StatusOr<std::unique_ptr<PartFile>> ShardCache::Write(
    const ManifestFile& file) {
  const std::string path = PathOf(file);
  RETURN_IF_ERROR(files_.CreateDirectories(ParentDirectory(path)));
  std::unique_ptr<PartFile> part(new PartFile(files_, file, path));
  for (int i = 0; i < kLockTries; ++i) {
    ASSIGN_OR_RETURN(const bool locked, part->TryLock());
    if (!locked) continue;
    if (files_.Exists(path)) {
      RETURN_IF_ERROR(files_.Remove(part->part_path()));
      return absl::AlreadyExistsError(absl::StrCat(path, " is there"));
    }
    ASSIGN_OR_RETURN(part->out_, files_.OpenForWrite(part->part_path()));
    RETURN_IF_ERROR(part->HashRest());
    return part;
  }
  return absl::UnavailableError(
      absl::StrCat("others remove ", part->part_path(), " again and again"));
}

int64_t ShardCache::GetPartBytes(const ManifestFile& file) const {
  struct stat status = {};
  const std::string path = absl::StrCat(PathOf(file), kPartEnd);
  return ::stat(path.c_str(), &status) == 0 ? status.st_size : 0;
}

bool ShardCache::MakeRoom(int64_t bytes) {
  const std::vector<Entry> entries = ListEntries(files_, directory_);
  int64_t total = bytes;
  for (const Entry& entry : entries) total += entry.size_bytes;
  for (const Entry& entry : entries) {
    if (total <= bytes_max_) break;
    if (RemoveUnused(files_, entry.path)) total -= entry.size_bytes;
  }
  return total <= bytes_max_;
}

int64_t ShardCache::Evict(int64_t bytes) {
  int64_t removed = 0;
  for (const Entry& entry : ListEntries(files_, directory_)) {
    if (removed >= bytes) break;
    if (RemoveUnused(files_, entry.path)) removed += entry.size_bytes;
  }
  return removed;
}

std::string ShardCache::ManifestPath(const std::string& fingerprint) const {
  return absl::StrCat(directory_, "/manifests/", fingerprint);
}

absl::StatusOr<std::string> ShardCache::ReadManifestText(
    const std::string& fingerprint) {
  return ReadFile(files_, ManifestPath(fingerprint), Manifest::kTextBytesMax);
}

absl::Status ShardCache::WriteManifestText(const std::string& fingerprint,
                                           absl::string_view text) {
  const std::string path = ManifestPath(fingerprint);
  RETURN_IF_ERROR(files_.CreateDirectories(ParentDirectory(path)));
  return WriteFileAtomically(files_, path, text);
}

}  // namespace atl::worker
