// Products of bfloat16 matrices by oneDNN's matmul primitive, with one thread.
//
// Prepare makes a shape's primitive once. oneDNN chooses it by shape and type
// of CPU alone. Multiply may run in many threads, Prepare in one and alone.

#pragma once

#include <cstdint>
#include <memory>

namespace atl::engine {

// c [m, n] = a [m, k] b [k, n], added to c if `accumulate`. Strides are in
// elements. One stride of a and one of b is 1; c's rows are dense.
struct MatmulShape {
  int64_t m, n, k;
  int64_t a_row, a_column;
  int64_t b_row, b_column;
  int64_t c_row;
  bool accumulate;

  friend auto operator<=>(const MatmulShape&, const MatmulShape&) = default;
};

class MatmulBf16 {
 public:
  MatmulBf16();
  ~MatmulBf16();

  void Prepare(const MatmulShape& shape);
  int64_t ScratchBytes(const MatmulShape& shape) const;

  // a and b are bfloat16, c is f32. `scratch` is 64-byte aligned and not shared
  // with other calls. Requires a prepared `shape`.
  void Multiply(const MatmulShape& shape, const void* a, const void* b,
                float* c, void* scratch) const;

 private:
  class Primitives;
  std::unique_ptr<Primitives> primitives_;  // Null until the first shape.
};

}  // namespace atl::engine
