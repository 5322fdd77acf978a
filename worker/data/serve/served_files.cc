#include "worker/data/serve/served_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/codec/sha256.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "worker/data/manifest.h"

namespace atl::worker {
namespace {

std::string ToEtag(absl::string_view sha256) {
  return absl::StrCat("\"", sha256, "\"");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServedFiles>> ServedFiles::Open(
    const std::string& directory) {
  UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoToStatus(errno, directory);
  const std::string path = absl::StrCat(directory, "/", kDataManifestName);
  ASSIGN_OR_RETURN(const std::string text,
                   ReadFile(PosixFileSystem(), path, Manifest::kTextBytesMax));
  ASSIGN_OR_RETURN(const Manifest manifest, ParseManifest(text, path));
  auto made =
      std::unique_ptr<ServedFiles>(new ServedFiles(directory, std::move(fd)));
  for (const ManifestFile& file : manifest.files) {
    made->files_[file.path] = {file.size_bytes, ToEtag(file.sha256)};
    made->size_bytes_ += file.size_bytes;
    RETURN_IF_ERROR(made->Find(file.path).status());
  }
  made->files_[kDataManifestName] = {
      static_cast<int64_t>(text.size()),
      ToEtag(codec::ToHex(codec::ComputeSha256(text)))};
  RETURN_IF_ERROR(made->Find(kDataManifestName).status());
  return made;
}

absl::StatusOr<ServedFile> ServedFiles::Find(absl::string_view path) const {
  const auto known = files_.find(path);
  if (known == files_.end()) {
    return absl::NotFoundError("the manifest names no such file");
  }
  ServedFile file;
  ASSIGN_OR_RETURN(file.fd, OpenBelow(path));
  struct stat found;
  if (::fstat(file.fd.get(), &found) != 0) {
    return ErrnoToStatus(errno, std::string(path));
  }
  if (!S_ISREG(found.st_mode) || found.st_size != known->second.size_bytes) {
    return absl::DataLossError(absl::StrCat(
        directory_, "/", path,
        " is not the file that was published: the manifest says ",
        known->second.size_bytes, " bytes; publish the data again"));
  }
  file.size_bytes = known->second.size_bytes;
  file.etag = known->second.etag;
  return file;
}

absl::StatusOr<UniqueFd> ServedFiles::OpenBelow(absl::string_view path) const {
  UniqueFd fd;
  const std::vector<std::string> parts = absl::StrSplit(path, '/');
  for (size_t i = 0; i < parts.size(); ++i) {
    // O_NONBLOCK: a pipe in a file's place does not block.
    const int kind = i + 1 < parts.size() ? O_DIRECTORY : O_NONBLOCK;
    UniqueFd next(::openat(i == 0 ? fd_.get() : fd.get(), parts[i].c_str(),
                           O_RDONLY | O_NOFOLLOW | O_CLOEXEC | kind));
    if (!next.valid()) {
      const int error = errno;
      if (error == ELOOP || error == ENOTDIR) {
        return absl::DataLossError(
            absl::StrCat(directory_, "/", path,
                         ": symbolic links are not served; copy the file"));
      }
      return ErrnoToStatus(error, absl::StrCat(directory_, "/", path));
    }
    fd = std::move(next);
  }
  return fd;
}

}  // namespace atl::worker
