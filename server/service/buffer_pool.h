// Reusable buffers of a chunk's size: a steady stream has no page faults.
// Thread-safe. Shared: a slice that gRPC still holds keeps the pool alive.

#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/codec/block_grid.h"
#include "base/sync/mutex.h"

namespace atl::server {

class BufferPool {
 public:
  static constexpr int64_t kElements =
      codec::kChunkPayloadBytesMax / static_cast<int64_t>(sizeof(float));
  static constexpr size_t kFreeMax = 64;

  using Buffer = std::unique_ptr<float[]>;

  Buffer Take() {
    {
      MutexLock lock(&mutex_);
      if (!free_.empty()) {
        Buffer buffer = std::move(free_.back());
        free_.pop_back();
        return buffer;
      }
    }
    return Buffer(new float[kElements]);
  }

  void Give(Buffer buffer) {
    MutexLock lock(&mutex_);
    if (free_.size() < kFreeMax) free_.push_back(std::move(buffer));
  }

 private:
  Mutex mutex_;
  std::vector<Buffer> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
