// Device memory that grows and is then kept. Thread-compatible.

#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "base/status/status_macros.h"
#include "worker/engine/tensor/memory.h"

namespace atl::engine::cuda {

template <typename T>
class DeviceScratch {
 public:
  explicit DeviceScratch(Memory& memory) : memory_(memory) {}
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;
  ~DeviceScratch() { memory_.Free(data_, bytes_); }

  // At least `count` elements. Growing loses their contents.
  //
  // Errors: those of Memory::Allocate; the scratch is then empty.
  absl::StatusOr<T*> Get(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    if (bytes > bytes_) {
      memory_.Free(data_, bytes_);
      data_ = nullptr;
      bytes_ = 0;
      ASSIGN_OR_RETURN(void* const data, memory_.Allocate(bytes));
      data_ = static_cast<T*>(data);
      bytes_ = bytes;
    }
    return data_;
  }

 private:
  Memory& memory_;
  T* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace atl::engine::cuda
