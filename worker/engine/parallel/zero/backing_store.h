// Storage for state that does not fit in a rank's memory: bytes at offsets,
// initially zero. Thread-compatible.

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

  // The range must be within the store. DATA_LOSS: the disk failed.
  virtual absl::Status Read(int64_t offset, void* data, int64_t byte_count) = 0;
  virtual absl::Status Write(int64_t offset, const void* data,
                             int64_t byte_count) = 0;
};

// Host memory. RESOURCE_EXHAUSTED: not enough memory.
absl::StatusOr<std::unique_ptr<BackingStore>> MakeMemoryStore(
    int64_t byte_count);

// An unnamed file in `directory` with all its space reserved. It ends with the
// object or the process. RESOURCE_EXHAUSTED: the disk is full.
// INVALID_ARGUMENT: no file can be made there.
absl::StatusOr<std::unique_ptr<BackingStore>> MakeFileStore(
    const std::string& directory, int64_t byte_count);

}  // namespace atl::engine
