// The mixture of experts of CudaOps.

#include <cstdint>

#include "worker/engine/ops/cuda/cuda_ops.h"
#include "worker/engine/ops/cuda/kernels.h"
#include "worker/engine/ops/cuda/plan/launch_plan.h"

namespace atl::engine::cuda {

void CudaOps::Route(const RouteShape& shape, const float* logits,
                    float* probabilities, int32_t* experts, float* weights) {
  Queue("routing", cuda::Route, shape, logits, probabilities, experts, weights);
}

void CudaOps::RouteBackward(const RouteShape& shape, const float* probabilities,
                            const int32_t* experts, const float* weights,
                            const float* dweights, const float* balance,
                            float* dlogits) {
  Queue("routing's gradient", cuda::RouteBackward, shape, probabilities,
        experts, weights, dweights, balance, dlogits);
}

void CudaOps::AddRouteTotals(const RouteShape& shape,
                             const float* probabilities, const int32_t* experts,
                             float* counts, float* sums) {
  if (!Begin()) return;
  cuda::AddChoices(stream_, shape, experts, counts);
  SumRows(shape.rows, shape.expert_count, probabilities, nullptr, nullptr,
          nullptr, sums, true);
  End("counting choices");
}

void CudaOps::CountChoices(const RouteShape& shape, const int32_t* experts,
                           float* counts) {
  Queue("counting the choices of groups", cuda::CountChoices, shape, experts,
        counts);
}

void CudaOps::PlanDispatch(const RouteShape& shape, const int32_t* experts,
                           const float* before, int32_t* slots,
                           int32_t* sources, int64_t* begins) {
  // The host reads `begins` even after an error.
  std::fill_n(begins, shape.expert_count + 1, 0);
  if (!Begin()) return;
  const int64_t choices = shape.rows * shape.experts_per_token;
  int32_t* const counts =
      Get(sort_, PlanSort(choices, 1).tiles * shape.expert_count);
  int64_t* const places = Get(begins_, shape.expert_count + 1);
  if (counts == nullptr || places == nullptr) return;
  cuda::PlanDispatch(stream_, shape, experts, before, counts, slots, sources,
                     places);
  End("sorting choices");
  ToHost(sizeof(int64_t) * (shape.expert_count + 1), places, begins);
}

void CudaOps::GatherRows(int64_t count, int64_t channels,
                         const int32_t* sources, const float* x, float* out) {
  Queue("gathering rows", cuda::GatherRows, count, channels, sources, x, out);
}

void CudaOps::CombineRows(const RouteShape& shape, int64_t channels,
                          const int32_t* slots, const float* weights,
                          const float* y, float* out) {
  Queue("combining rows", cuda::CombineRows, shape, channels, slots, weights, y,
        out);
}

void CudaOps::CombineRowsBackward(const RouteShape& shape, int64_t channels,
                                  const int32_t* slots, const float* weights,
                                  const float* y, const float* dout, float* dy,
                                  float* dweights) {
  Queue("combined rows' gradient", cuda::CombineRowsBackward, shape, channels,
        slots, weights, y, dout, dy, dweights);
}

}  // namespace atl::engine::cuda
