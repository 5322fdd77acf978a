// The memory of one CUDA device. Thread-compatible.
//
// Keeps freed blocks, because cudaMalloc and cudaFree wait for the device. A
// block may be reused while earlier queued work still uses it: all users queue
// on `stream`, so the new work runs later.

#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/engine/ops/cuda/plan/block_cache.h"
#include "worker/engine/ops/cuda/runtime.h"
#include "worker/engine/tensor/memory.h"

namespace atl::engine::cuda {

class DeviceMemory final : public Memory {
 public:
  DeviceMemory(int device, cudaStream_t stream)
      : device_(device), stream_(stream) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  // All memory must be free.
  ~DeviceMemory() override;

  // Zeroes the memory on the stream. If full, frees cached blocks and retries.
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* memory, size_t bytes) override;
  bool is_host() const override { return false; }

  // Counts Allocate and Free. While it is unchanged, addresses stay valid.
  int64_t change_count() const { return change_count_; }

 private:
  void FreeCached();

  const int device_;
  const cudaStream_t stream_;
  BlockCache cache_;
  int64_t change_count_ = 0;
  size_t used_bytes_ = 0;  // Without cached blocks.
};

}  // namespace atl::engine::cuda
