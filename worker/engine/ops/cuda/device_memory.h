// The memory of one CUDA device, which keeps what it was given back: cudaMalloc
// and cudaFree wait for the device, and these do not.
//
// A block may be given out again while work that was queued before still uses
// it: all users queue on the one stream that `stream` is, in which the new
// user's work comes later. Thread-compatible.

#ifndef WORKER_ENGINE_OPS_CUDA_DEVICE_MEMORY_H_
#define WORKER_ENGINE_OPS_CUDA_DEVICE_MEMORY_H_

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
  // All was given back.
  ~DeviceMemory() override;

  // Zeroes the memory on the stream. When the device has no more, what is
  // cached is freed first.
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* memory, size_t bytes) override;
  bool is_host() const override { return false; }

  // How often it was asked for memory or given some back: while that is the
  // same, every address means what it meant.
  int64_t change_count() const { return change_count_; }
  // Given out now, and the most that was at a time; without what is cached.
  size_t used_bytes() const { return used_bytes_; }
  size_t used_bytes_max() const { return used_bytes_max_; }

 private:
  void FreeCached();

  const int device_;
  const cudaStream_t stream_;
  BlockCache cache_;
  int64_t change_count_ = 0;
  size_t used_bytes_ = 0;
  size_t used_bytes_max_ = 0;
};

}  // namespace atl::engine::cuda

#endif  // WORKER_ENGINE_OPS_CUDA_DEVICE_MEMORY_H_
