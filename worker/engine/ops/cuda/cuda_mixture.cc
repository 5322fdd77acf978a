// The mixture of experts of CudaOps.

#include <cstdint>

#include "worker/engine/ops/cuda/cuda_ops.h"
#include "worker/engine/ops/cuda/kernels.h"
#include "worker/engine/ops/cuda/plan/launch_plan.h"

namespace atl::engine::cuda {

void CudaOps::Route(const RouteShape& shape, const float* logits,
                    float* probabilities, int32_t* experts, float* weights) {
  if (!Begin()) return;
  cuda::Route(stream_, shape, logits, probabilities, experts, weights);
  End("routing");
}

void CudaOps::RouteBackward(const RouteShape& shape, const float* probabilities,
                            const int32_t* experts, const float* weights,
                            const float* dweights, const float* balance,
                            float* dlogits) {
  if (!Begin()) return;
  cuda::RouteBackward(stream_, shape, probabilities, experts, weights, dweights,
                      balance, dlogits);
  End("routing's gradient");
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
  if (!Begin()) return;
  cuda::CountChoices(stream_, shape, experts, counts);
  End("counting the choices of groups");
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
  if (!Begin()) return;
  cuda::GatherRows(stream_, count, channels, sources, x, out);
  End("gathering rows");
}

void CudaOps::CombineRows(const RouteShape& shape, int64_t channels,
                          const int32_t* slots, const float* weights,
                          const float* y, float* out) {
  if (!Begin()) return;
  cuda::CombineRows(stream_, shape, channels, slots, weights, y, out);
  End("combining rows");
}

void CudaOps::CombineRowsBackward(const RouteShape& shape, int64_t channels,
                                  const int32_t* slots, const float* weights,
                                  const float* y, const float* dout, float* dy,
                                  float* dweights) {
  if (!Begin()) return;
  cuda::CombineRowsBackward(stream_, shape, channels, slots, weights, y, dout,
                            dy, dweights);
  End("combined rows' gradient");
}

}  // namespace atl::engine::cuda
