// How much of this machine's memory holds tensors.

#ifndef WORKER_ENGINE_TENSOR_HOST_MEMORY_H_
#define WORKER_ENGINE_TENSOR_HOST_MEMORY_H_

#include <cstdint>

namespace atl::engine {

// Bytes that HostMemory() (memory.h) has given and not taken back, as they were
// asked for. Thread-safe.
int64_t HostMemoryBytes();

}  // namespace atl::engine

#endif  // WORKER_ENGINE_TENSOR_HOST_MEMORY_H_
