// The memory of one CUDA device. It caches freed blocks, because cudaMalloc and
// cudaFree wait for the device.
//
// Allocate may return a block that earlier queued work still uses. This is safe
// because all users queue on `stream`, so new work runs later.
// Thread-compatible.

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
  // Requires that all memory was freed.
  ~DeviceMemory() override;

  // Zeroes the memory on the stream. If the device is out of memory, frees the
  // cached blocks and tries again.
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* memory, size_t bytes) override;
  bool is_host() const override { return false; }

  // The number of Allocate and Free calls. While it is unchanged, every address
  // has the same meaning.
  int64_t change_count() const { return change_count_; }
  // Bytes allocated now, and their maximum so far; without cached blocks.
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
