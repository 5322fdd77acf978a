#include "worker/engine/ops/cuda/device_memory.h"

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "worker/engine/ops/cuda/error_latch.h"

namespace atl::engine::cuda {

DeviceMemory::~DeviceMemory() { FreeCached(); }

absl::StatusOr<void*> DeviceMemory::Allocate(size_t bytes) {
  const size_t size = BlockBytes(bytes);
  ++change_count_;
  RETURN_IF_ERROR(ToStatus(cudaSetDevice(device_), "selecting it", device_));
  void* block = cache_.Take(bytes);
  if (block == nullptr) {
    cudaError_t error = cudaMalloc(&block, size);
    if (error == cudaErrorMemoryAllocation && cache_.cached_bytes() > 0) {
      (void)cudaGetLastError();
      FreeCached();
      error = cudaMalloc(&block, size);
    }
    if (error != cudaSuccess) {
      (void)cudaGetLastError();  // Clears it: the returned status reports it.
      return ToStatus(
          error,
          absl::StrCat("allocating ", size, " bytes on top of ", used_bytes_),
          device_);
    }
  }
  const cudaError_t error = cudaMemsetAsync(block, 0, size, stream_);
  if (error != cudaSuccess) {
    cache_.Put(block, bytes);
    return ToStatus(error, "zeroing memory", device_);
  }
  used_bytes_ += size;
  return block;
}

void DeviceMemory::Free(void* memory, size_t bytes) {
  if (memory == nullptr) return;
  ++change_count_;
  used_bytes_ -= BlockBytes(bytes);
  cache_.Put(memory, bytes);
}

void DeviceMemory::FreeCached() {
  // The broken stream reports this error itself.
  (void)cudaStreamSynchronize(stream_);
  for (void* block : cache_.TakeAll()) (void)cudaFree(block);
}

}  // namespace atl::engine::cuda
