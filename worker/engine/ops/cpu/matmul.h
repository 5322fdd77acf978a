// Products of bfloat16 matrices by oneDNN's matmul primitive, with one thread.
//
// A primitive is made the first time that a shape comes and is kept; which one
// oneDNN chooses depends on the shape and the type of CPU alone. Prepare must
// not run beside another call; Multiply may run in many threads.

#ifndef WORKER_ENGINE_OPS_CPU_MATMUL_H_
#define WORKER_ENGINE_OPS_CPU_MATMUL_H_

#include <cstdint>
#include <memory>

namespace atl::engine {

// c [m, n] = a [m, k] b [k, n], added to what c holds if `accumulate`. Strides
// in elements; of a and b one is 1, c's rows are dense.
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

  // Makes what Multiply needs for `shape`.
  void Prepare(const MatmulShape& shape);
  // Bytes of scratch that a prepared shape needs.
  int64_t ScratchBytes(const MatmulShape& shape) const;

  // a and b are bfloat16, c is f32; `scratch` is this call's own, 64-byte
  // aligned. Requires that `shape` is prepared.
  void Multiply(const MatmulShape& shape, const void* a, const void* b,
                float* c, void* scratch) const;

 private:
  class Primitives;
  std::unique_ptr<Primitives> primitives_;  // Made at the first shape.
};

}  // namespace atl::engine

#endif  // WORKER_ENGINE_OPS_CPU_MATMUL_H_
