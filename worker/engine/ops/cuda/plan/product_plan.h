// A matrix product in the terms of BLAS, whose matrices are column-major. Pure.
//
// A row-major matrix is a transposed column-major one. So each product of ops.h
// is transposed: D = op(A) op(B) with D [m, n], op(A) [m, k], op(B) [k, n].

#pragma once

#include <cstdint>

namespace atl::engine::cuda {

// The products of ops.h: x [M, K], w [N, K], y [M, N].
enum class ProductKind {
  kLinear,          // first w, second x, out y
  kBackwardInput,   // first w, second dy, out dx
  kBackwardWeight,  // first x, second dy, out dw
};

// A is `first` and B is `second`.
struct ProductPlan {
  bool transpose_a = false;
  bool transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldd = 0;  // Elements from column to column.
};
ProductPlan PlanProduct(ProductKind kind, int64_t m, int64_t n, int64_t k);

// The largest power of two, up to 256, that divides the address.
int FindAlignment(const void* pointer);

}  // namespace atl::engine::cuda
