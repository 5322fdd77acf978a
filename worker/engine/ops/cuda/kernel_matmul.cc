#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "worker/engine/ops/cuda/error_latch.h"
#include "worker/engine/ops/cuda/kernels.h"
#include "worker/engine/ops/cuda/matmul.h"
#include "worker/engine/ops/cuda/plan/product_plan.h"

namespace atl::engine::cuda {
namespace {

class KernelMatmul final : public Matmul {
 public:
  explicit KernelMatmul(int device) : device_(device) {}

  absl::Status Multiply(cudaStream_t stream, ProductKind kind, int64_t m,
                        int64_t n, int64_t k, bool is_bf16, const void* first,
                        const void* second, float* out,
                        bool accumulate) override {
    const ProductPlan plan = PlanProduct(kind, m, n, k);
    // Row-major out [plan.n, plan.m] = op(B)^T op(A)^T.
    const ProductOperand b = {.data = second,
                              .outer_step = plan.transpose_b ? 1 : plan.ldb,
                              .inner_step = plan.transpose_b ? plan.ldb : 1};
    const ProductOperand a = {.data = first,
                              .outer_step = plan.transpose_a ? plan.lda : 1,
                              .inner_step = plan.transpose_a ? 1 : plan.lda};
    Product(stream, plan.n, plan.m, plan.k, b, a, is_bf16, out, accumulate);
    return ToStatus(cudaGetLastError(), "a matrix product", device_);
  }

 private:
  const int device_;
};

}  // namespace

std::unique_ptr<Matmul> MakeKernelMatmul(int device) {
  return std::make_unique<KernelMatmul>(device);
}

}  // namespace atl::engine::cuda
