#include "worker/checkpoint/export_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/codec/sha256.h"
#include "base/io/files.h"
#include "base/io/hash_file.h"
#include "base/random_id/random_id.h"
#include "base/status/annotate.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"

namespace atl::worker {
namespace {

constexpr char kLockName[] = ".atoll-export.lock";
constexpr absl::string_view kLockHeader = "atoll export\n";
constexpr size_t kLockBytesMax = 256;
constexpr int kLockTries = 10;
constexpr char kUnfinishedManifestName[] = "unfinished-manifest.json";
constexpr int64_t kManifestBytesMax = 16 << 20;

// Digits at the front of `text`, which are removed.
int TakeDigits(absl::string_view &text) {
  int count = 0;
  for (; !text.empty() && absl::ascii_isdigit(text[0]); ++count) {
    text.remove_prefix(1);
  }
  return count;
}

// True for the names that an export can have.
bool IsExportName(absl::string_view name) {
  for (const absl::string_view own :
       {kConfigName, kGenerationConfigName, kWeightsName, kWeightIndexName}) {
    if (name == own) return true;
  }
  return absl::ConsumePrefix(&name, "model-") && TakeDigits(name) >= 5 &&
         absl::ConsumePrefix(&name, "-of-") && TakeDigits(name) >= 5 &&
         name == ".safetensors";
}

std::string TemporaryPrefix(absl::string_view id) {
  return absl::StrCat(".atoll-export-", id, ".");
}

absl::Status Refused(absl::string_view reason, absl::string_view message) {
  return Refuse(absl::StatusCode::kAlreadyExists, reason, message);
}

std::string Describe(const CheckpointSource &source) {
  if (source.run_id.empty()) return "a model of no run";
  return absl::StrCat(
      "run ", source.run_id,
      source.run_uid.empty() ? "" : absl::StrCat(" (", source.run_uid, ")"),
      " at commit ", source.commit_seq);
}

// Older versions wrote no run_uid.
bool IsSameRun(const CheckpointSource &a, const CheckpointSource &b) {
  return a.run_id == b.run_id &&
         (a.run_uid.empty() || b.run_uid.empty() || a.run_uid == b.run_uid);
}

absl::Status AppearedMeanwhile(const std::string &path) {
  return Refused("NOT_OURS",
                 absl::StrCat("another program changed ", path,
                              " during the export: move it away, and export "
                              "again"));
}

// True if `file`, at `path`, has the bytes that a manifest lists. A manifest
// without a sum has only the size.
absl::StatusOr<bool> HasBytes(const RandomAccessFile &file,
                              const std::string &path,
                              const CheckpointManifest::File &listed) {
  ASSIGN_OR_RETURN(const int64_t size, file.Size());
  if (size != listed.size_bytes) return false;
  if (listed.sha256.empty()) return true;
  ASSIGN_OR_RETURN(const codec::Sha256Digest sum, HashFile(file, size, path));
  return codec::ToHex(sum) == listed.sha256;
}

// The id in the lock file, empty if a crash has cut it; nullopt if the file is
// not ours.
std::optional<std::string> ReadLock(int fd) {
  std::string text(kLockBytesMax, '\0');
  const ssize_t count = ::pread(fd, text.data(), text.size(), 0);
  if (count < 0) return std::nullopt;
  text.resize(count);
  const size_t length = std::min(text.size(), kLockHeader.size());
  if (text.substr(0, length) != kLockHeader.substr(0, length)) {
    return std::nullopt;
  }
  const std::string id(absl::StripAsciiWhitespace(text.substr(length)));
  return IsRandomId(id) ? id : "";
}

absl::Status WriteLock(int fd, const std::string &path, absl::string_view id) {
  const std::string text = absl::StrCat(kLockHeader, id, "\n");
  if (::ftruncate(fd, 0) != 0 ||
      ::pwrite(fd, text.data(), text.size(), 0) !=
          static_cast<ssize_t>(text.size()) ||
      ::fsync(fd) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("write ", path));
  }
  return absl::OkStatus();
}

// The files that together show a program's data directory.
struct DataDirectory {
  absl::string_view owner;
  std::array<absl::string_view, 2> names;
};
constexpr DataDirectory kDataDirectories[] = {
    {"parameter server", {"identity", "lock"}},
    {"coordinator", {"mark", "CURRENT"}},
};
// The ending of local checkpoints.
constexpr absl::string_view kSaveEnding = ".save";

absl::Status IsData(const std::string &path, absl::string_view owner) {
  return Refused("NOT_OURS", absl::StrCat(path, " has the data of a ", owner,
                                          ": give another directory"));
}

// Refuses a directory of a program's data, and those below it.
absl::Status CheckNoData(FileSystem &file_system,
                         const std::string &directory) {
  for (std::string at = directory;;) {
    for (const DataDirectory &data : kDataDirectories) {
      if (absl::c_all_of(data.names, [&](absl::string_view name) {
            return file_system.Exists(absl::StrCat(at, "/", name));
          })) {
        return IsData(at, data.owner);
      }
    }
    const std::string parent = ParentDirectory(at);
    if (parent == at || parent == ".") break;
    at = parent;
  }
  const absl::StatusOr<std::vector<std::string>> names =
      file_system.List(directory);
  if (names.ok() && absl::c_any_of(*names, [](const std::string &name) {
        return absl::EndsWith(name, kSaveEnding);
      })) {
    return IsData(directory, "local checkpoint");
  }
  return absl::OkStatus();
}

absl::Status OfAnotherUser(const std::string &path) {
  return Refused("NOT_OURS",
                 absl::StrCat(path,
                              " belongs to another user: give another "
                              "directory"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExportDirectory>> ExportDirectory::Open(
    FileSystem &file_system, std::string directory,
    ExportDirectoryOptions options) {
  std::unique_ptr<ExportDirectory> made(
      new ExportDirectory(std::move(directory), std::move(options)));
  RETURN_IF_ERROR(made->MakeDirectory(file_system));
  RETURN_IF_ERROR(made->Lock());
  RETURN_IF_ERROR(made->ReadManifest());
  RETURN_IF_ERROR(made->CheckNames());
  RETURN_IF_ERROR(made->CheckUnchanged());
  RETURN_IF_ERROR(made->CheckSource());
  RETURN_IF_ERROR(made->StartTemporaries());
  return made;
}

ExportDirectory::~ExportDirectory() {
  const bool is_clean =
      left_id_.empty() && (id_.empty() || RemoveTemporaries(id_).ok());
  // Otherwise the lock file names what is left.
  if (lock_.valid() && is_clean) opened_->Remove(kLockName).IgnoreError();
  // Fails if there is a file in it. Unlike Remove it never unlinks a link.
  if (made_directory_) ::rmdir(directory_.c_str());
}

std::string ExportDirectory::PathOf(absl::string_view name) const {
  return absl::StrCat(directory_, "/", name);
}

std::string ExportDirectory::TemporaryNameOf(absl::string_view name) const {
  return absl::StrCat(TemporaryPrefix(id_), name);
}

absl::Status ExportDirectory::MakeDirectory(FileSystem &file_system) {
  RETURN_IF_ERROR(CheckNoData(file_system, directory_));
  const bool is_there = file_system.Exists(directory_);
  RETURN_IF_ERROR(file_system.CreateDirectories(directory_));
  made_directory_ = !is_there;
  ASSIGN_OR_RETURN(opened_, OpenDirectory::Open(file_system, directory_));
  // Its owner could replace the files of the export.
  return opened_->CheckOwner().ok() ? absl::OkStatus()
                                    : OfAnotherUser(directory_);
}

absl::Status ExportDirectory::Lock() {
  const std::string path = PathOf(kLockName);
  for (int i = 0; i < kLockTries; ++i) {
    ASSIGN_OR_RETURN(const NameUse use, opened_->FindUse(kLockName));
    if (use == NameUse::kForeign) return OfAnotherUser(path);
    UniqueFd fd;
    if (use != NameUse::kOther) {
      ASSIGN_OR_RETURN(fd, opened_->OpenFile(kLockName, O_RDWR | O_CREAT));
    }
    if (!fd.valid() || !ReadLock(fd.get()).has_value()) {
      return Refused("NOT_OURS",
                     absl::StrCat(path,
                                  " is not the lock file of an export: "
                                  "remove it, or give another "
                                  "directory"));
    }
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) {
        return Refused(
            "EXPORT_RUNS",
            absl::StrCat("another process exports to ", directory_,
                         ": wait for it, or give another directory"));
      }
      // Not every network's file system can lock. There, too, a mixture of two
      // exports has a file with another SHA-256 than the manifest's.
      if (errno != ENOLCK && errno != ENOSYS && errno != EOPNOTSUPP) {
        return ErrnoToStatus(errno, absl::StrCat("lock ", path));
      }
    }
    // The holder before us may have removed it.
    if (!opened_->IsNamed(fd.get(), kLockName)) continue;
    lock_ = std::move(fd);
    left_id_ = ReadLock(lock_.get()).value_or("");
    return absl::OkStatus();
  }
  return Refused("EXPORT_RUNS",
                 absl::StrCat("others export to ", directory_,
                              " again and again: give another directory"));
}

absl::Status ExportDirectory::ReadManifest() {
  const std::string path = PathOf(kManifestName);
  ASSIGN_OR_RETURN(const NameUse use, opened_->FindUse(kManifestName));
  if (use == NameUse::kFree) return absl::OkStatus();
  if (use == NameUse::kForeign) return OfAnotherUser(path);
  if (use == NameUse::kFile) {
    const absl::StatusOr<std::string> text =
        opened_->Read(kManifestName, kManifestBytesMax);
    if (!text.ok() && !absl::IsResourceExhausted(text.status())) {
      return text.status();
    }
    if (text.ok()) before_ = ParseCheckpointManifest(*text);
  }
  if (before_.has_value()) return absl::OkStatus();
  return Refused("NOT_OURS",
                 absl::StrCat(path,
                              " is not the manifest of an export (a "
                              "published data set has one too): give "
                              "another directory"));
}

bool ExportDirectory::IsOurs(absl::string_view name) const {
  return before_.has_value() && IsExportName(name) &&
         absl::c_any_of(before_->files,
                        [&](const CheckpointManifest::File &file) {
                          return file.name == name;
                        });
}

absl::Status ExportDirectory::CheckNames() {
  for (const std::string &name : options_.names) {
    ASSIGN_OR_RETURN(const NameUse use, opened_->FindUse(name));
    if (use == NameUse::kFree) continue;
    if (use == NameUse::kForeign) return OfAnotherUser(PathOf(name));
    if (use == NameUse::kOther) {
      return Refused("NOT_OURS",
                     absl::StrCat(PathOf(name),
                                  " is not a regular file: move it away, or "
                                  "give another directory"));
    }
    if (!IsOurs(name)) {
      return Refused(
          "NOT_OURS",
          absl::StrCat("no export of this program wrote ", PathOf(name),
                       ": move it away, or give another "
                       "directory"));
    }
  }
  return absl::OkStatus();
}

absl::Status ExportDirectory::CheckUnchanged() const {
  if (!before_.has_value() || !before_->is_finished) return absl::OkStatus();
  for (const CheckpointManifest::File &file : before_->files) {
    if (!IsOurs(file.name)) continue;
    ASSIGN_OR_RETURN(const NameUse use, opened_->FindUse(file.name));
    if (use != NameUse::kFile) continue;
    ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> open,
                     opened_->OpenForRead(file.name));
    ASSIGN_OR_RETURN(const bool is_same,
                     HasBytes(*open, PathOf(file.name), file));
    if (is_same) continue;
    return Refused("NOT_OURS",
                   absl::StrCat(PathOf(file.name),
                                " was changed since it was exported: move it "
                                "away, or give another directory"));
  }
  return absl::OkStatus();
}

absl::Status ExportDirectory::CheckSource() const {
  if (!before_.has_value() || options_.replaces_other) return absl::OkStatus();
  const bool same_run = IsSameRun(before_->source, options_.source);
  // An unfinished export holds nothing whole that a newer commit could replace.
  if (same_run && (!before_->is_finished ||
                   before_->source.commit_seq == options_.source.commit_seq)) {
    return absl::OkStatus();
  }
  return Refused(
      "EXPORT_DIFFERS",
      absl::StrCat(directory_, " has the export of ", Describe(before_->source),
                   ", not of ", Describe(options_.source),
                   ": give another directory"));
}

absl::Status ExportDirectory::StartTemporaries() {
  if (!left_id_.empty()) RETURN_IF_ERROR(RemoveTemporaries(left_id_));
  left_id_.clear();
  const std::string id = RandomId();
  RETURN_IF_ERROR(WriteLock(lock_.get(), PathOf(kLockName), id));
  // The list must be durable before the first file that it names.
  RETURN_IF_ERROR(opened_->Sync());
  id_ = id;
  return absl::OkStatus();
}

absl::Status ExportDirectory::RemoveTemporaries(absl::string_view id) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, opened_->List());
  const std::string prefix = TemporaryPrefix(id);
  for (const std::string &name : names) {
    if (!absl::StartsWith(name, prefix)) continue;
    ASSIGN_OR_RETURN(const NameUse use, opened_->FindUse(name));
    if (use != NameUse::kFile) continue;
    RETURN_IF_ERROR(opened_->Remove(name));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> ExportDirectory::Create(
    const std::string &name) {
  return opened_->Create(TemporaryNameOf(name));
}

absl::Status ExportDirectory::WriteManifest(const CheckpointManifest &manifest,
                                            absl::string_view temporary_name) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file,
                   Create(std::string(temporary_name)));
  RETURN_IF_ERROR(file->WriteAt(0, WriteCheckpointManifest(manifest)));
  return file->Sync();
}

// Renames the temporary file of `name`. A file that appeared after Open is not
// replaced.
absl::Status ExportDirectory::Rename(const std::string &name) {
  ASSIGN_OR_RETURN(const NameUse use, opened_->FindUse(name));
  if (use != NameUse::kFree && (use != NameUse::kFile || !IsOurs(name))) {
    return AppearedMeanwhile(PathOf(name));
  }
  return opened_->Rename(TemporaryNameOf(name), name);
}

absl::Status ExportDirectory::RemoveStale() {
  if (!before_.has_value()) return absl::OkStatus();
  for (const CheckpointManifest::File &file : before_->files) {
    const bool is_needed = absl::c_linear_search(options_.names, file.name);
    if (!IsOurs(file.name) || (is_needed && file.name != kConfigName)) continue;
    ASSIGN_OR_RETURN(const NameUse use, opened_->FindUse(file.name));
    if (use != NameUse::kFile) continue;
    RETURN_IF_ERROR(opened_->Remove(file.name));
  }
  return absl::OkStatus();
}

absl::Status ExportDirectory::Commit(const CheckpointManifest &manifest) {
  CheckpointManifest unfinished = manifest;
  unfinished.is_finished = false;
  if (before_.has_value()) {
    for (const CheckpointManifest::File &file : before_->files) {
      if (absl::c_linear_search(options_.names, file.name)) continue;
      unfinished.files.push_back(file);
    }
  }
  RETURN_IF_ERROR(WriteManifest(unfinished, kUnfinishedManifestName));
  RETURN_IF_ERROR(WriteManifest(manifest, kManifestName));
  ASSIGN_OR_RETURN(const NameUse use, opened_->FindUse(kManifestName));
  if (use != (before_.has_value() ? NameUse::kFile : NameUse::kFree)) {
    return AppearedMeanwhile(PathOf(kManifestName));
  }
  RETURN_IF_ERROR(
      opened_->Rename(TemporaryNameOf(kUnfinishedManifestName), kManifestName));
  RETURN_IF_ERROR(opened_->Sync());
  RETURN_IF_ERROR(RemoveStale());
  RETURN_IF_ERROR(opened_->Sync());
  bool has_config = false;
  for (const std::string &name : options_.names) {
    if (name == kConfigName) {
      has_config = true;
    } else {
      RETURN_IF_ERROR(Rename(name));
    }
  }
  if (has_config) {
    RETURN_IF_ERROR(opened_->Sync());
    RETURN_IF_ERROR(Rename(kConfigName));
  }
  RETURN_IF_ERROR(opened_->Sync());
  RETURN_IF_ERROR(
      opened_->Rename(TemporaryNameOf(kManifestName), kManifestName));
  made_directory_ = false;
  return opened_->Sync();
}

}  // namespace atl::worker
