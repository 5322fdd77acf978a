// Temporary memory within a call. Thread-compatible.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/status/check.h"

namespace atl::engine {

// Growing loses its contents.
template <typename T>
class Scratch {
 public:
  T* Get(int64_t count) {
    if (count > capacity_) {
      constexpr size_t kAlignment = 64;
      const size_t bytes =
          (static_cast<size_t>(count) * sizeof(T) + kAlignment - 1) /
          kAlignment * kAlignment;
      data_.reset(static_cast<T*>(std::aligned_alloc(kAlignment, bytes)));
      CHECK(data_ != nullptr) << "out of memory for scratch";
      capacity_ = count;
    }
    return data_.get();
  }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  int64_t capacity_ = 0;
};

}  // namespace atl::engine
