// The files that a data server gives out: the manifest.json of a directory of
// `atoll data publish`, and the files that it names. Nothing else can be
// opened: a path is looked up in the manifest, and no symbolic link below the
// directory is followed.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/io/unique_fd.h"

namespace atl::worker {

// An open file.
struct ServedFile {
  UniqueFd fd;
  int64_t size_bytes = 0;
  std::string etag;  // Strong: of the SHA-256.
};

class ServedFiles {
 public:
  // Reads the manifest, and opens every file once.
  //
  // NOT_FOUND: the directory, its manifest or a file is missing.
  // INVALID_ARGUMENT: the manifest is wrong. DATA_LOSS: a file has another size
  // than the manifest says, or is not a regular file.
  static absl::StatusOr<std::unique_ptr<ServedFiles>> Open(
      const std::string& directory);

  // Opens the file at `path`, relative to the directory.
  // NOT_FOUND: it is neither the manifest nor named by it. Others: as Open.
  absl::StatusOr<ServedFile> Find(absl::string_view path) const;

  // Number of files, the manifest excluded.
  int64_t file_count() const { return static_cast<int64_t>(files_.size()) - 1; }
  int64_t size_bytes() const { return size_bytes_; }  // Sum over all files.

 private:
  struct Known {
    int64_t size_bytes = 0;
    std::string etag;
  };

  ServedFiles(std::string directory, UniqueFd fd)
      : directory_(std::move(directory)), fd_(std::move(fd)) {}

  absl::StatusOr<UniqueFd> OpenBelow(absl::string_view path) const;

  const std::string directory_;
  const UniqueFd fd_;
  absl::flat_hash_map<std::string, Known> files_;
  int64_t size_bytes_ = 0;
};

}  // namespace atl::worker
