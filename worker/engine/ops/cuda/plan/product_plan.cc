#include "worker/engine/ops/cuda/plan/product_plan.h"

namespace atl::engine::cuda {

ProductPlan PlanProduct(ProductKind kind, int64_t m, int64_t n, int64_t k) {
  switch (kind) {
    case ProductKind::kLinear:  // y^T [N, M] = w [N, K] x^T [K, M]
      return {.transpose_a = true,
              .transpose_b = false,
              .m = n,
              .n = m,
              .k = k,
              .lda = k,
              .ldb = k,
              .ldd = n};
    case ProductKind::kBackwardInput:  // dx^T [K, M] = w^T [K, N] dy^T [N, M]
      return {.transpose_a = false,
              .transpose_b = false,
              .m = k,
              .n = m,
              .k = n,
              .lda = k,
              .ldb = n,
              .ldd = k};
    case ProductKind::kBackwardWeight:  // dw^T [K, N] = x^T [K, M] dy [M, N]
      return {.transpose_a = false,
              .transpose_b = true,
              .m = k,
              .n = n,
              .k = m,
              .lda = k,
              .ldb = n,
              .ldd = k};
  }
  return {};
}

int FindAlignment(const void* pointer) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  int alignment = 256;
  while (address % alignment != 0) alignment /= 2;
  return alignment;
}

}  // namespace atl::engine::cuda
