// Memory for buffers: the host's or a device's. Thread-compatible; HostMemory()
// is thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace atl::engine {

class Memory {
 public:
  // The alignment of every buffer.
  static constexpr size_t kAlignmentBytes = 64;

  virtual ~Memory() = default;

  // `bytes` of zeroed memory. Zero bytes may return null.
  //
  // RESOURCE_EXHAUSTED: out of memory. UNAVAILABLE: the device failed.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;

  // Frees a result of Allocate for the same `bytes`; null is allowed. Work
  // already queued on a device may still use it.
  virtual void Free(void* memory, size_t bytes) = 0;

  virtual bool is_host() const = 0;
};

// This machine's memory. Buffers of 1 MiB and more are advised for huge pages;
// no two buffers share one.
Memory& HostMemory();

// Bytes that HostMemory() has given out and that are not yet freed.
// Thread-safe.
int64_t HostMemoryBytes();

}  // namespace atl::engine
