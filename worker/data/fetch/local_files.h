// The files of a manifest in a directory of this machine. They are read in
// place, and checked when they are opened for the first time.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/sync/mutex.h"
#include "worker/data/data_file_reader.h"
#include "worker/data/file_source.h"
#include "worker/data/manifest.h"

namespace atl::worker {

class LocalFiles : public FileSource {
 public:
  LocalFiles(std::vector<ManifestFile> files, std::string directory)
      : files_(std::move(files)),
        directory_(std::move(directory)),
        is_checked_(files_.size(), false) {}

  absl::StatusOr<std::shared_ptr<const DataFileReader>> Open(
      int32_t index) override;

 private:
  const std::vector<ManifestFile> files_;
  const std::string directory_;
  Mutex mutex_;
  std::vector<bool> is_checked_ ABSL_GUARDED_BY(mutex_);  // By index.
};

}  // namespace atl::worker
