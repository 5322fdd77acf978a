// Where buffers lie: the memory of the host or of a device.
//
// Thread-compatible, HostMemory thread-safe.

#ifndef WORKER_ENGINE_TENSOR_MEMORY_H_
#define WORKER_ENGINE_TENSOR_MEMORY_H_

#include <cstddef>

#include "absl/status/statusor.h"

namespace atl::engine {

class Memory {
 public:
  // What every buffer's start is a multiple of.
  static constexpr size_t kAlignmentBytes = 64;

  virtual ~Memory() = default;

  // `bytes` of zeroed memory. Zero bytes may give null.
  //
  // RESOURCE_EXHAUSTED: there is not so much. UNAVAILABLE: the device failed.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;

  // Takes back what Allocate gave for as many bytes; null is allowed. What was
  // queued on a device before may still use it.
  virtual void Free(void* memory, size_t bytes) = 0;

  // Whether the host can read and write it.
  virtual bool is_host() const = 0;
};

// This machine's, advised for huge pages, which no other buffer shares.
Memory& HostMemory();

}  // namespace atl::engine

#endif  // WORKER_ENGINE_TENSOR_MEMORY_H_
