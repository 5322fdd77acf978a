// How much memory of this machine holds tensors.

#pragma once

#include <cstdint>

namespace atl::engine {

// Bytes requested from HostMemory() (memory.h) and not yet freed. Thread-safe.
int64_t HostMemoryBytes();

}  // namespace atl::engine
