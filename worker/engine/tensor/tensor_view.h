// A dense row-major matrix that someone else owns. A vector has one row. Pure.

#pragma once

#include <cstdint>

namespace atl::engine {

template <typename T>
struct TensorView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;

  int64_t size() const { return rows * columns; }
  T* row(int64_t r) const { return data + r * columns; }
};

}  // namespace atl::engine
