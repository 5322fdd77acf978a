// How much memory of this machine holds tensors.

#ifndef WORKER_ENGINE_TENSOR_HOST_MEMORY_H_
#define WORKER_ENGINE_TENSOR_HOST_MEMORY_H_

#include <cstdint>

namespace atl::engine {

// Bytes requested from HostMemory() (memory.h) and not yet freed. Thread-safe.
int64_t HostMemoryBytes();

}  // namespace atl::engine

#endif  // WORKER_ENGINE_TENSOR_HOST_MEMORY_H_
