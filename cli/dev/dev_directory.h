// The directory of one `atoll dev up`.
//
//   DIR/lock               held while the command runs
//   DIR/run                the id of its run; proves that the directory is ours
//   DIR/endpoints.json     written once the servers serve
//   DIR/result.json        written at the end of the run
//   DIR/coordinator/       data/, port, pid, log
//   DIR/server-0/ ...      the same
//   DIR/island-0/ ...      work/, pid, log
//   DIR/export/            the model at the end
//   DIR/validation.bin     the held-out tokens
//
// It and the directories in it have mode 0700. No file in it is opened through
// a link.
//
// Thread-compatible.

#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/io/open_directory.h"
#include "base/io/unique_fd.h"

namespace atl::cli {

class DevDirectory {
 public:
  // Creates `path` if necessary, takes its lock, and gives the directory to
  // `run_id` if it is empty. A directory of an older version has no DIR/run:
  // endpoints.json or result.json names its run.
  //
  // ALREADY_EXISTS: another process holds the lock; the message has its pid.
  // DIRECTORY_OF_OTHER_RUN: it is of another run. NOT_OURS: it has files, and
  // no `atoll dev up` made it. The latter two leave it unchanged.
  // FAILED_PRECONDITION, NOT_OURS: another user controls the directory, one
  // above it, or its lock. Others: of the file system.
  static absl::StatusOr<std::unique_ptr<DevDirectory>> Open(
      const std::string& path, absl::string_view run_id);
  DevDirectory(const DevDirectory&) = delete;
  DevDirectory& operator=(const DevDirectory&) = delete;

  // Absolute, without links.
  const std::string& path() const { return path_; }

  std::string File(absl::string_view name) const;

  // Creates the directory of one child and returns its path.
  absl::StatusOr<std::string> MakeChildDirectory(absl::string_view name) const;

 private:
  DevDirectory(std::string path, std::unique_ptr<OpenDirectory> opened,
               UniqueFd lock)
      : path_(std::move(path)),
        opened_(std::move(opened)),
        lock_(std::move(lock)) {}

  const std::string path_;
  const std::unique_ptr<OpenDirectory> opened_;
  const UniqueFd lock_;  // Holds the lock.
};

// The port in a port file ("4711" or "host:4711"); 0 if it has none yet.
int ReadPortFile(const std::string& path);

}  // namespace atl::cli
