#include "worker/data/fetch/shard_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/layout/ids.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl::worker {
namespace {

constexpr char kPartEnd[] = ".part";
// Tries to lock a name that others rename or remove at the same time.
constexpr int kLockTries = 10;

constexpr char kManifests[] = "manifests";

struct Entry {
  std::string directory;
  std::string name;
  int64_t size_bytes = 0;
  timespec last_use = {};
};

std::string DirectoryOf(const ManifestFile& file) {
  return file.sha256.substr(0, 2);
}

// True for what a cache names its files and parts: nothing else is its own, even
// in a directory that holds other files.
bool IsEntryName(absl::string_view directory, absl::string_view file) {
  absl::ConsumeSuffix(&file, kPartEnd);
  return directory.size() == 2 && absl::StartsWith(file, directory) &&
         IsLowerHex(file, 64);
}

// All files and parts, the least recently used first.
std::vector<Entry> ListEntries(const OpenDirectory& cache) {
  std::vector<Entry> entries;
  for (const std::string& name :
       cache.List().value_or(std::vector<std::string>())) {
    if (name.size() != 2) continue;
    const auto below = cache.OpenSubdirectory(name);
    if (!below.ok()) continue;
    for (const std::string& file :
         (*below)->List().value_or(std::vector<std::string>())) {
      if (!IsEntryName(name, file)) continue;
      const std::optional<struct stat> status = (*below)->Look(file);
      if (!status.has_value() || !S_ISREG(status->st_mode)) continue;
      entries.push_back({name, file, status->st_size, status->st_mtim});
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.last_use.tv_sec, a.last_use.tv_nsec) <
           std::pair(b.last_use.tv_sec, b.last_use.tv_nsec);
  });
  return entries;
}

// Removes a file that is not in use. False: it is in use, or already gone.
bool RemoveUnused(const OpenDirectory& cache, const Entry& entry) {
  const auto directory = cache.OpenSubdirectory(entry.directory);
  if (!directory.ok()) return false;
  const auto fd = (*directory)->OpenTrusted(entry.name, O_RDONLY);
  return fd.ok() && ::flock(fd->get(), LOCK_EX | LOCK_NB) == 0 &&
         (*directory)->IsNamed(fd->get(), entry.name) &&
         (*directory)->Remove(entry.name).ok();
}

}  // namespace

std::string PartFile::part_name() const {
  return absl::StrCat(file_.sha256, kPartEnd);
}

absl::StatusOr<bool> PartFile::TryLock() {
  const std::string path = part_path();
  ASSIGN_OR_RETURN(locked_,
                   directory_->OpenTrusted(part_name(), O_RDWR | O_CREAT));
  if (::flock(locked_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      return ErrnoToStatus(errno, absl::StrCat("lock ", path));
    }
    return absl::UnavailableError(
        absl::StrCat("another process writes ", path));
  }
  return directory_->IsNamed(locked_.get(), part_name());
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
  RETURN_IF_ERROR(directory_->Rename(part_name(), file_.sha256));
  RETURN_IF_ERROR(directory_->Sync());
  // The lock becomes that of a reader.
  if (::flock(locked_.get(), LOCK_SH | LOCK_NB) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("lock ", path()));
  }
  return std::make_shared<const DataFileReader>(std::move(locked_), path());
}

absl::StatusOr<std::unique_ptr<ShardCache>> ShardCache::Open(
    std::string directory, int64_t bytes_max, FileSystem& files) {
  ASSIGN_OR_RETURN(std::unique_ptr<OpenDirectory> opened,
                   OpenDirectory::MakePrivate(files, directory));
  return std::unique_ptr<ShardCache>(new ShardCache(
      std::move(directory), std::move(opened), bytes_max, files));
}

absl::StatusOr<std::shared_ptr<const DataFileReader>> ShardCache::Find(
    const ManifestFile& file) {
  const auto directory = opened_->OpenSubdirectory(DirectoryOf(file));
  if (absl::IsNotFound(directory.status())) return nullptr;
  RETURN_IF_ERROR(directory.status());
  absl::StatusOr<UniqueFd> fd =
      (*directory)->OpenTrusted(file.sha256, O_RDONLY);
  if (absl::IsNotFound(fd.status())) return nullptr;
  RETURN_IF_ERROR(fd.status());
  const std::string path = (*directory)->PathOf(file.sha256);
  // An exclusive lock is short: it renames or removes the file.
  struct stat status = {};
  if (::flock(fd->get(), LOCK_SH | LOCK_NB) != 0 ||
      !(*directory)->IsNamed(fd->get(), file.sha256) ||
      ::fstat(fd->get(), &status) != 0) {
    return nullptr;
  }
  ::futimens(fd->get(), nullptr);  // A failure costs only the order of removal.
  const auto reader =
      std::make_shared<const DataFileReader>(*std::move(fd), path);
  absl::StatusOr<std::string> sha256 =
      status.st_size == file.size_bytes
          ? reader->ComputeSha256(file.size_bytes)
          : absl::DataLossError("it has another size");
  if (sha256.ok() && *sha256 == file.sha256) return reader;
  LOG(WARNING) << "cached data file " << path << " is damaged and is removed: "
               << (sha256.ok() ? "its SHA-256 differs"
                               : sha256.status().message());
  RETURN_IF_ERROR((*directory)->Remove(file.sha256));
  return nullptr;
}

absl::StatusOr<std::unique_ptr<PartFile>> ShardCache::Write(
    const ManifestFile& file) {
  ASSIGN_OR_RETURN(std::unique_ptr<OpenDirectory> made,
                   opened_->MakeSubdirectory(DirectoryOf(file)));
  std::unique_ptr<PartFile> part(new PartFile(files_, file, std::move(made)));
  OpenDirectory& directory = *part->directory_;
  for (int i = 0; i < kLockTries; ++i) {
    ASSIGN_OR_RETURN(const bool locked, part->TryLock());
    if (!locked) continue;
    if (directory.Look(file.sha256).has_value()) {
      RETURN_IF_ERROR(directory.Remove(part->part_name()));
      return absl::AlreadyExistsError(
          absl::StrCat(part->path(), " is there"));
    }
    ASSIGN_OR_RETURN(part->out_, directory.OpenForWrite(part->locked_.get(),
                                                        part->part_name()));
    RETURN_IF_ERROR(part->HashRest());
    return part;
  }
  return absl::UnavailableError(
      absl::StrCat("others remove ", part->part_path(), " again and again"));
}

int64_t ShardCache::GetPartBytes(const ManifestFile& file) const {
  const auto directory = opened_->OpenSubdirectory(DirectoryOf(file));
  if (!directory.ok()) return 0;
  const std::optional<struct stat> status =
      (*directory)->Look(absl::StrCat(file.sha256, kPartEnd));
  return status.has_value() && S_ISREG(status->st_mode) ? status->st_size : 0;
}

bool ShardCache::MakeRoom(int64_t bytes) {
  const std::vector<Entry> entries = ListEntries(*opened_);
  int64_t total = bytes;
  for (const Entry& entry : entries) total += entry.size_bytes;
  for (const Entry& entry : entries) {
    if (total <= bytes_max_) break;
    if (RemoveUnused(*opened_, entry)) total -= entry.size_bytes;
  }
  return total <= bytes_max_;
}

int64_t ShardCache::Evict(int64_t bytes) {
  int64_t removed = 0;
  for (const Entry& entry : ListEntries(*opened_)) {
    if (removed >= bytes) break;
    if (RemoveUnused(*opened_, entry)) removed += entry.size_bytes;
  }
  return removed;
}

absl::StatusOr<std::string> ShardCache::ReadManifestText(
    const std::string& fingerprint) {
  ASSIGN_OR_RETURN(const std::unique_ptr<OpenDirectory> manifests,
                   opened_->OpenSubdirectory(kManifests));
  return manifests->Read(fingerprint, Manifest::kTextBytesMax);
}

absl::Status ShardCache::WriteManifestText(const std::string& fingerprint,
                                           absl::string_view text) {
  ASSIGN_OR_RETURN(const std::unique_ptr<OpenDirectory> manifests,
                   opened_->MakeSubdirectory(kManifests));
  return manifests->Replace(fingerprint, text);
}

}  // namespace atl::worker
