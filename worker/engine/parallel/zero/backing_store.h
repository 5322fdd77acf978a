// Where state lies that does not fit in a rank's memory: bytes at offsets.
//
// Thread-compatible. Starts with zeros.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace atl::engine {

class BackingStore {
 public:
  virtual ~BackingStore() = default;

  // [offset, offset + byte_count) lies within the store.
  //
  // DATA_LOSS: the disk failed.
  virtual absl::Status Read(int64_t offset, void* data, int64_t byte_count) = 0;
  virtual absl::Status Write(int64_t offset, const void* data,
                             int64_t byte_count) = 0;
};

// Memory of the host.
//
// RESOURCE_EXHAUSTED: there is not so much.
absl::StatusOr<std::unique_ptr<BackingStore>> MakeMemoryStore(
    int64_t byte_count);

// A file without a name in `directory`, all of whose space is reserved: it ends
// with the object, however the process ends.
//
// RESOURCE_EXHAUSTED: the disk is full. INVALID_ARGUMENT: no file can be made
// there.
absl::StatusOr<std::unique_ptr<BackingStore>> MakeFileStore(
    const std::string& directory, int64_t byte_count);

}  // namespace atl::engine
