// The source of a manifest's files: a directory, or a URL and a cache.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/data_file_reader.h"

namespace atl::worker {

// Thread-safe.
class FileSource {
 public:
  virtual ~FileSource() = default;

  // Whether Open of each of `files` would return at once. Never waits. The
  // files are those that are needed now: they come, in their order, and stay
  // until they are opened or the next call of Ready.
  //
  // DataAwaited (worker/core/data_awaited.h): one is not here yet. Others: as
  // Open would return.
  virtual absl::Status Ready(absl::Span<const int32_t> files) {
    return absl::OkStatus();
  }

  // Opens file `index` of the manifest. Its bytes are those of the manifest.
  // May wait until they are here. Messages name the file and its place.
  //
  // NOT_FOUND: there is no such file. DATA_LOSS: it has other bytes, or the
  // disk is broken. RESOURCE_EXHAUSTED: the disk or the cache is full.
  // UNAVAILABLE: the place was out of reach for too long. CANCELLED: stopped
  // meanwhile. Others: the place refuses.
  virtual absl::StatusOr<std::shared_ptr<const DataFileReader>> Open(
      int32_t index) = 0;

  // Tells that Open of file `index` follows later. Does not wait.
  virtual void Prefetch(int32_t index) {}
};

}  // namespace atl::worker
