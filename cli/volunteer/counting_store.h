// Counts the bytes that are read of data by URL.

#pragma once

#include <cstdint>
#include <functional>

#include "worker/api/run_data.h"

namespace atl::cli {

// Stores of `open` whose reads call `on_bytes` with the size of each piece.
// `on_bytes` is called on the threads that read, so it must be thread-safe.
worker::StoreOpener CountReads(worker::StoreOpener open,
                               std::function<void(int64_t)> on_bytes);

}  // namespace atl::cli
