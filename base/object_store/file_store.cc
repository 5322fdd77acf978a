#include "base/object_store/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/io/files.h"
#include "base/io/open_directory.h"
#include "base/io/unique_fd.h"
#include "base/object_store/object_url.h"
#include "base/random_id/random_id.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

constexpr int64_t kPieceBytes = 256 << 10;
constexpr char kHiddenBegin[] = ".atoll-";

// Bytes of an object's name in its hidden file's.
constexpr size_t kHiddenNameBytesMax = 180;

// The hidden file that becomes the file `name`.
std::string MakeHiddenName(absl::string_view name) {
  return absl::StrCat(kHiddenBegin, RandomId(), "-",
                      name.substr(0, kHiddenNameBytesMax));
}

// The beginning of the name that a hidden file is made for; nullopt for other
// files.
std::optional<absl::string_view> ParseHiddenName(
    absl::string_view file_name) {
  if (!absl::ConsumePrefix(&file_name, kHiddenBegin)) return std::nullopt;
  const size_t end = std::min(file_name.size(), file_name.find('-'));
  if (!IsRandomId(file_name.substr(0, end))) return std::nullopt;
  file_name.remove_prefix(end);
  absl::ConsumePrefix(&file_name, "-");
  return file_name;
}

std::string MakeEtag(const struct stat& status) {
  return absl::StrFormat("%x-%x-%x.%x", status.st_ino, status.st_size,
                         status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

absl::Status NoFile(const std::string& path) {
  return absl::NotFoundError(absl::StrCat(path, " is not a regular file"));
}

absl::Status Replaced(const std::string& path) {
  return absl::AbortedError(absl::StrCat(
      path, " was replaced or changed; read it again from its beginning"));
}

// Where a file lies. No link below the store's directory is followed.
struct FilePlace {
  std::unique_ptr<OpenDirectory> directory;
  std::string name;
  // Other directories that got a new name, innermost first.
  std::vector<std::unique_ptr<OpenDirectory>> parents;
  std::vector<std::string> root_parents;
};

// Finds the place of `name` below `path`; of `path` itself if it is empty.
// `makes`: makes missing directories, else they are NOT_FOUND.
absl::StatusOr<FilePlace> FindPlace(FileSystem& files, const std::string& path,
                                    absl::string_view name, bool makes) {
  FilePlace place;
  std::string root = path;
  std::vector<std::string> parts = absl::StrSplit(name, '/');
  if (name.empty()) {
    root = ParentDirectory(path);
    parts = {path.substr(path.rfind('/') + 1)};
  }
  place.name = std::move(parts.back());
  parts.pop_back();
  if (makes) {
    for (std::string made = root; !files.Exists(made);) {
      made = ParentDirectory(made);
      place.root_parents.push_back(made);
    }
    if (!place.root_parents.empty()) {
      RETURN_IF_ERROR(files.CreateDirectories(root));
    }
  }
  ASSIGN_OR_RETURN(place.directory, OpenDirectory::Open(files, root));
  for (const std::string& part : parts) {
    ASSIGN_OR_RETURN(const NameUse use, place.directory->FindUse(part));
    std::unique_ptr<OpenDirectory> parent = std::move(place.directory);
    ASSIGN_OR_RETURN(place.directory,
                     makes ? parent->MakeSharedSubdirectory(part)
                           : parent->OpenSharedSubdirectory(part));
    if (use == NameUse::kFree) {
      place.parents.insert(place.parents.begin(), std::move(parent));
    }
  }
  return place;
}

// The file that a writer fills, until it gets its name.
class FileWriter : public ObjectWriter {
 public:
  FileWriter(FileSystem& files, FilePlace place, WriteMode mode)
      : files_(files),
        place_(std::move(place)),
        mode_(mode),
        hidden_name_(MakeHiddenName(place_.name)) {}

  ~FileWriter() override {
    if (file_ == nullptr) return;
    file_.reset();
    place_.directory->Remove(hidden_name_).IgnoreError();
  }

  absl::Status Start() {
    ASSIGN_OR_RETURN(const NameUse use, place_.directory->FindUse(place_.name));
    if (mode_ == WriteMode::kCreate && use != NameUse::kFree) return Exists();
    ASSIGN_OR_RETURN(file_, place_.directory->Create(hidden_name_));
    return absl::OkStatus();
  }

  absl::Status Append(absl::string_view bytes) override {
    RETURN_IF_ERROR(file_->WriteAt(size_bytes_, bytes));
    size_bytes_ += static_cast<int64_t>(bytes.size());
    return absl::OkStatus();
  }

  absl::Status Commit() override {
    OpenDirectory& directory = *place_.directory;
    RETURN_IF_ERROR(file_->Sync());
    if (mode_ == WriteMode::kCreate) {
      // Unlike a rename, a link never replaces.
      const absl::Status linked = directory.Link(hidden_name_, place_.name);
      if (absl::IsAlreadyExists(linked) && !IsOurs()) return Exists();
      if (!absl::IsAlreadyExists(linked)) RETURN_IF_ERROR(linked);
      RETURN_IF_ERROR(directory.Remove(hidden_name_));
    } else {
      RETURN_IF_ERROR(directory.Rename(hidden_name_, place_.name));
    }
    file_.reset();
    RETURN_IF_ERROR(directory.Sync());
    for (const std::unique_ptr<OpenDirectory>& parent : place_.parents) {
      RETURN_IF_ERROR(parent->Sync());
    }
    for (const std::string& parent : place_.root_parents) {
      RETURN_IF_ERROR(files_.SyncDirectory(parent));
    }
    return absl::OkStatus();
  }

 private:
  // True if the name is the hidden file's: over NFS a repeated link fails
  // although an earlier one, whose answer was lost, has made it.
  bool IsOurs() const {
    const auto hidden = place_.directory->Look(hidden_name_);
    const auto named = place_.directory->Look(place_.name);
    return hidden.has_value() && named.has_value() &&
           hidden->st_dev == named->st_dev && hidden->st_ino == named->st_ino;
  }

  absl::Status Exists() const {
    return absl::AlreadyExistsError(
        absl::StrCat(place_.directory->PathOf(place_.name),
                     " exists; choose another name"));
  }

  FileSystem& files_;
  FilePlace place_;
  const WriteMode mode_;
  const std::string hidden_name_;
  std::unique_ptr<RandomAccessFile> file_;  // Null once it has its name.
  int64_t size_bytes_ = 0;
};

class FileStore : public ObjectStore {
 public:
  FileStore(std::string path, FileSystem& files)
      : path_(std::move(path)), files_(files) {}

  absl::StatusOr<std::vector<ObjectInfo>> List(absl::string_view prefix,
                                               int64_t count_max) override {
    std::error_code error;
    if (!std::filesystem::is_directory(path_, error)) {
      if (files_.Exists(path_)) return std::vector<ObjectInfo>();
      return absl::NotFoundError(absl::StrCat(path_, " does not exist"));
    }
    // Only the prefix's directory is read.
    const size_t slash = prefix.rfind('/');
    const std::string begin(
        prefix.substr(0, slash == absl::string_view::npos ? 0 : slash));
    RETURN_IF_ERROR(CheckRelativeName(begin));
    const std::string root = JoinObjectName(path_, begin);
    std::vector<ObjectInfo> found;
    if (!std::filesystem::is_directory(root, error)) return found;
    std::filesystem::recursive_directory_iterator files(root, error);
    for (; !error && files != std::filesystem::end(files);
         files.increment(error)) {
      std::string name = JoinObjectName(
          begin, files->path().lexically_relative(root).string());
      if (!absl::StartsWith(name, prefix)) continue;
      struct stat status = {};
      if (lstat(files->path().c_str(), &status) != 0 ||
          !S_ISREG(status.st_mode) ||
          ParseHiddenName(files->path().filename().string())) {
        continue;  // Also a file that was removed meanwhile.
      }
      if (static_cast<int64_t>(found.size()) >= count_max) {
        return absl::ResourceExhaustedError(
            absl::StrCat(JoinObjectName(path_, prefix), ": more than ",
                         count_max, " files; name a directory with fewer"));
      }
      found.push_back({std::move(name), status.st_size, MakeEtag(status)});
    }
    if (error) return ErrnoToStatus(error.value(), absl::StrCat("list ", root));
    std::sort(found.begin(), found.end(),
              [](const ObjectInfo& a, const ObjectInfo& b) {
                return a.name < b.name;
              });
    return found;
  }

  absl::StatusOr<ObjectInfo> Stat(absl::string_view name) override {
    RETURN_IF_ERROR(CheckRelativeName(name));
    const std::string path = JoinObjectName(path_, name);
    struct stat status = {};
    if (stat(path.c_str(), &status) != 0) {
      return ErrnoToStatus(errno, absl::StrCat("stat ", path));
    }
    if (!S_ISREG(status.st_mode)) return NoFile(path);
    return ObjectInfo{std::string(name), status.st_size, MakeEtag(status)};
  }

  absl::Status Read(absl::string_view name, const ReadRange& range,
                    ObjectSink sink) override {
    RETURN_IF_ERROR(CheckRelativeName(name));
    const std::string path = JoinObjectName(path_, name);
    // O_NONBLOCK: opening a pipe must not wait for its writer.
    const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.valid()) return ErrnoToStatus(errno, absl::StrCat("open ", path));
    struct stat status = {};
    if (fstat(file.get(), &status) != 0) {
      return ErrnoToStatus(errno, absl::StrCat("stat ", path));
    }
    if (!S_ISREG(status.st_mode)) return NoFile(path);
    const std::string etag = MakeEtag(status);
    if (!range.etag.empty() && range.etag != etag) return Replaced(path);
    ASSIGN_OR_RETURN(const int64_t end,
                     GetRangeEnd(range, status.st_size, path));
    RETURN_IF_ERROR(ReadRangeOf(file.get(), range.offset, end, path, sink));
    if (fstat(file.get(), &status) != 0 || MakeEtag(status) != etag) {
      return Replaced(path);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<ObjectWriter>> Write(absl::string_view name,
                                                      WriteMode mode) override {
    RETURN_IF_ERROR(CheckRelativeName(name));
    ASSIGN_OR_RETURN(FilePlace place,
                     FindPlace(files_, path_, name, /*makes=*/true));
    auto writer = std::make_unique<FileWriter>(files_, std::move(place), mode);
    RETURN_IF_ERROR(writer->Start());
    return writer;
  }

  absl::Status Remove(absl::string_view name) override {
    RETURN_IF_ERROR(CheckRelativeName(name));
    const absl::StatusOr<FilePlace> place =
        FindPlace(files_, path_, name, /*makes=*/false);
    if (absl::IsNotFound(place.status())) return absl::OkStatus();
    RETURN_IF_ERROR(place.status());
    ASSIGN_OR_RETURN(const NameUse use, place->directory->FindUse(place->name));
    if (use == NameUse::kFree) return absl::OkStatus();
    if (use == NameUse::kOther) return NoFile(GetUrl(name));
    RETURN_IF_ERROR(place->directory->Remove(place->name));
    return place->directory->Sync();
  }

  absl::Status RemoveUnfinished(absl::string_view prefix) override {
    // A name in the prefix's directory, perhaps empty.
    const size_t slash = prefix.rfind('/');
    const absl::string_view begin =
        prefix.substr(slash == absl::string_view::npos ? 0 : slash + 1);
    RETURN_IF_ERROR(CheckRelativeName(
        prefix.substr(0, slash == absl::string_view::npos ? 0 : slash)));
    const absl::StatusOr<FilePlace> place = FindPlace(
        files_, path_, begin.empty() ? absl::StrCat(prefix, "x") : prefix,
        /*makes=*/false);
    if (absl::IsNotFound(place.status())) return absl::OkStatus();
    RETURN_IF_ERROR(place.status());
    ASSIGN_OR_RETURN(const std::vector<std::string> names,
                     place->directory->List());
    for (const std::string& name : names) {
      const std::optional<absl::string_view> hidden = ParseHiddenName(name);
      if (!hidden.has_value() || !absl::StartsWith(*hidden, begin)) continue;
      ASSIGN_OR_RETURN(const NameUse use, place->directory->FindUse(name));
      if (use != NameUse::kFile) continue;  // Not a file of this user.
      RETURN_IF_ERROR(place->directory->Remove(name));
    }
    return absl::OkStatus();
  }

  std::string GetUrl(absl::string_view name) const override {
    return absl::StrCat("file://", JoinObjectName(path_, name));
  }

 private:
  static absl::Status ReadRangeOf(int fd, int64_t begin, int64_t end,
                                  const std::string& path, ObjectSink sink) {
    std::vector<char> piece(std::min(end - begin, kPieceBytes));
    while (begin < end) {
      const size_t count = std::min(end - begin, kPieceBytes);
      const ssize_t n = pread(fd, piece.data(), count, begin);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoToStatus(errno, absl::StrCat("read ", path));
      if (n == 0) return Replaced(path);
      RETURN_IF_ERROR(sink(absl::string_view(piece.data(), n)));
      begin += n;
    }
    return absl::OkStatus();
  }

  const std::string path_;
  FileSystem& files_;
};

}  // namespace

std::unique_ptr<ObjectStore> MakeFileStore(std::string path,
                                           FileSystem& files) {
  return std::make_unique<FileStore>(std::move(path), files);
}

}  // namespace atl
