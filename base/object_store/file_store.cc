#include "base/object_store/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/io/files.h"
#include "base/io/unique_fd.h"
#include "base/object_store/object_url.h"
#include "base/random_id/random_id.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

constexpr int64_t kPieceBytes = 256 << 10;
constexpr char kHiddenBegin[] = ".atoll-";

// The hidden file that becomes a file of `directory`.
std::string MakeHiddenPath(absl::string_view directory) {
  return JoinObjectName(directory, absl::StrCat(kHiddenBegin, RandomId()));
}

bool IsHidden(absl::string_view file_name) {
  return absl::ConsumePrefix(&file_name, kHiddenBegin) && IsRandomId(file_name);
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

// The file that a writer fills, until it gets its name.
class FileWriter : public ObjectWriter {
 public:
  FileWriter(FileSystem& files, std::string path, WriteMode mode)
      : files_(files), path_(std::move(path)), mode_(mode) {}

  ~FileWriter() override {
    if (file_ == nullptr) return;
    file_.reset();
    files_.Remove(hidden_path_).IgnoreError();
  }

  absl::Status Start() {
    const std::string directory = ParentDirectory(path_);
    to_sync_ = {directory};
    for (std::string made = directory; !files_.Exists(made);) {
      made = ParentDirectory(made);
      to_sync_.push_back(made);
    }
    RETURN_IF_ERROR(files_.CreateDirectories(directory));
    if (mode_ == WriteMode::kCreate && files_.Exists(path_)) return Exists();
    hidden_path_ = MakeHiddenPath(directory);
    ASSIGN_OR_RETURN(file_, files_.OpenForWrite(hidden_path_));
    return absl::OkStatus();
  }

  absl::Status Append(absl::string_view bytes) override {
    RETURN_IF_ERROR(file_->WriteAt(size_bytes_, bytes));
    size_bytes_ += static_cast<int64_t>(bytes.size());
    return absl::OkStatus();
  }

  absl::Status Commit() override {
    RETURN_IF_ERROR(file_->Sync());
    if (mode_ == WriteMode::kCreate) {
      // Unlike rename, link never replaces.
      if (link(hidden_path_.c_str(), path_.c_str()) != 0) {
        if (errno == EEXIST) return Exists();
        return ErrnoToStatus(errno, absl::StrCat("link ", path_));
      }
      RETURN_IF_ERROR(files_.Remove(hidden_path_));
    } else {
      RETURN_IF_ERROR(files_.Rename(hidden_path_, path_));
    }
    file_.reset();
    for (const std::string& directory : to_sync_) {
      RETURN_IF_ERROR(files_.SyncDirectory(directory));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Exists() const {
    return absl::AlreadyExistsError(
        absl::StrCat(path_, " exists; choose another name"));
  }

  FileSystem& files_;
  const std::string path_;
  const WriteMode mode_;
  std::vector<std::string> to_sync_;  // Directories that get a new name.
  std::string hidden_path_;
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
          IsHidden(files->path().filename().string())) {
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
    auto writer =
        std::make_unique<FileWriter>(files_, JoinObjectName(path_, name), mode);
    RETURN_IF_ERROR(writer->Start());
    return writer;
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
