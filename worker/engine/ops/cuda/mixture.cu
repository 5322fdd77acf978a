// The mixture of experts: routing, sorting choices by expert, moving rows.

#include <cstdint>

#include "worker/engine/ops/cuda/device.h"
#include "worker/engine/ops/cuda/kernels.h"
#include "worker/engine/ops/cuda/plan/launch_plan.h"

namespace atl::engine::cuda {
namespace {

constexpr int kExpertsALane = 32;  // 1024 experts at most.

// An expert and its probability; expert -1: none yet.
struct Choice {
  float probability;
  int expert;
};

// The likelier choice; on ties the lower expert.
__device__ inline Choice Likelier(Choice a, Choice b) {
  if (a.expert < 0) return b;
  if (b.expert < 0) return a;
  const bool takes_b = b.probability > a.probability ||
                       (b.probability == a.probability && b.expert < a.expert);
  return takes_b ? b : a;
}

__global__ void RouteKernel(RouteShape shape, const float* logits,
                            float* probabilities, int32_t* experts,
                            float* weights) {
  const int n = static_cast<int>(shape.expert_count);
  const int k = static_cast<int>(shape.experts_per_token);
  const int lane = threadIdx.x % kWarpSize;
  const int64_t warps = GlobalThreads() / kWarpSize;
  for (int64_t r = GlobalThread() / kWarpSize; r < shape.rows; r += warps) {
    const float* row = logits + r * n;
    float* p = probabilities + r * n;
    float top = row[0];
    for (int e = lane; e < n; e += kWarpSize) top = row[e] > top ? row[e] : top;
    top = WarpMax(top);
    float sum = 0;
    for (int e = lane; e < n; e += kWarpSize) sum += expf(row[e] - top);
    const float log_total = top + logf(WarpSum(sum));
    for (int e = lane; e < n; e += kWarpSize) p[e] = expf(row[e] - log_total);
    unsigned taken = 0;  // Bit i: expert lane + 32 i.
    float total = 0;
    for (int j = 0; j < k; ++j) {
      Choice best = {0, -1};
      for (int i = 0, e = lane; e < n; ++i, e += kWarpSize) {
        if ((taken >> i & 1u) == 0) best = Likelier(best, {p[e], e});
      }
#pragma unroll
      for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
        const float p_other =
            __shfl_xor_sync(kAllLanes, best.probability, mask);
        const int e_other = __shfl_xor_sync(kAllLanes, best.expert, mask);
        best = Likelier(best, {p_other, e_other});
      }
      // With a NaN the lanes may disagree; lane 0 decides.
      best.probability = __shfl_sync(kAllLanes, best.probability, 0);
      best.expert = __shfl_sync(kAllLanes, best.expert, 0);
      if (best.expert % kWarpSize == lane) {
        taken |= 1u << best.expert / kWarpSize;
      }
      total += best.probability;
      if (lane == 0) {
        experts[r * k + j] = best.expert;
        weights[r * k + j] = best.probability;
      }
    }
    if (lane == 0) {
      for (int j = 0; j < k; ++j) weights[r * k + j] /= total;
    }
  }
}

__global__ void RouteBackwardKernel(RouteShape shape,
                                    const float* probabilities,
                                    const int32_t* experts,
                                    const float* weights, const float* dweights,
                                    const float* balance, float* dlogits) {
  const int n = static_cast<int>(shape.expert_count);
  const int k = static_cast<int>(shape.experts_per_token);
  const int lane = threadIdx.x % kWarpSize;
  const int64_t warps = GlobalThreads() / kWarpSize;
  for (int64_t r = GlobalThread() / kWarpSize; r < shape.rows; r += warps) {
    const float* p = probabilities + r * n;
    float mean = 0, total = 0;
    for (int j = 0; j < k; ++j) {
      mean += weights[r * k + j] * dweights[r * k + j];
      total += p[experts[r * k + j]];
    }
    const auto gradient = [&](int e) {
      float dp = balance[e];
      for (int j = 0; j < k; ++j) {
        if (experts[r * k + j] == e) dp += (dweights[r * k + j] - mean) / total;
      }
      return dp;
    };
    float inner = 0;
    for (int e = lane; e < n; e += kWarpSize) inner += p[e] * gradient(e);
    inner = WarpSum(inner);
    for (int e = lane; e < n; e += kWarpSize) {
      dlogits[r * n + e] = p[e] * (gradient(e) - inner);
    }
  }
}

// One block per expert.
__global__ void AddChoicesKernel(int64_t choices, const int32_t* experts,
                                 float* counts) {
  __shared__ int shared[kWarpSize];
  const int expert = blockIdx.x;
  int count = 0;
  for (int64_t i = threadIdx.x; i < choices; i += blockDim.x) {
    count += experts[i] == expert;
  }
  count = BlockSum(count, shared);
  if (threadIdx.x == 0) counts[expert] += static_cast<float>(count);
}

// One block per group.
__global__ void CountChoicesKernel(RouteShape shape, const int32_t* experts,
                                   float* counts) {
  ATL_DYNAMIC_SHARED(int, own);  // [E]
  const int n = static_cast<int>(shape.expert_count);
  const int64_t choices = shape.group_rows * shape.experts_per_token;
  for (int64_t g = blockIdx.x; g < shape.group_count(); g += gridDim.x) {
    for (int e = threadIdx.x; e < n; e += blockDim.x) own[e] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < choices; i += blockDim.x) {
      atomicAdd(&own[experts[g * choices + i]], 1);
    }
    __syncthreads();
    for (int e = threadIdx.x; e < n; e += blockDim.x) {
      counts[g * n + e] = static_cast<float>(own[e]);
    }
    __syncthreads();
  }
}

// slots[i] = 0 if the expert's capacity in this group admits choice i, else -1.
// One block per group, one tile after the other.
__global__ void KeepChoicesKernel(RouteShape shape, const int32_t* experts,
                                  const float* before, int32_t* slots) {
  ATL_DYNAMIC_SHARED(int, taken);  // [E], choices before the tile.
  __shared__ int32_t chosen[kSortTile];
  const int n = static_cast<int>(shape.expert_count);
  const int64_t choices = shape.group_rows * shape.experts_per_token;
  for (int64_t g = blockIdx.x; g < shape.group_count(); g += gridDim.x) {
    for (int e = threadIdx.x; e < n; e += blockDim.x) {
      taken[e] = before == nullptr ? 0 : static_cast<int>(before[g * n + e]);
    }
    for (int64_t tile = 0; tile < choices; tile += kSortTile) {
      const int64_t i = tile + threadIdx.x;
      const int32_t expert = i < choices ? experts[g * choices + i] : -1;
      chosen[threadIdx.x] = expert;
      __syncthreads();
      if (expert >= 0) {
        int64_t rank = taken[expert];
        for (int t = 0; t < static_cast<int>(threadIdx.x); ++t) {
          rank += chosen[t] == expert;
        }
        slots[g * choices + i] = rank < shape.capacity ? 0 : -1;
      }
      __syncthreads();
      if (expert >= 0) atomicAdd(&taken[expert], 1);
      __syncthreads();
    }
  }
}

// tile_counts[e, tile]: how often the tile chooses e, without choices whose
// `kept` [R, K] is -1 (null: all). One block per tile.
__global__ void CountTilesKernel(int64_t choices, int64_t tiles,
                                 int expert_count, const int32_t* experts,
                                 const int32_t* kept, int32_t* tile_counts) {
  ATL_DYNAMIC_SHARED(int, counts);  // [E]
  for (int e = threadIdx.x; e < expert_count; e += blockDim.x) counts[e] = 0;
  __syncthreads();
  const int64_t i = GlobalThread();
  if (i < choices && (kept == nullptr || kept[i] >= 0)) {
    atomicAdd(&counts[experts[i]], 1);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < expert_count; e += blockDim.x) {
    tile_counts[e * tiles + blockIdx.x] = counts[e];
  }
}

// tile_counts[e, tile] becomes the choices of e before the tile, and begins
// each expert's first slot. One block.
__global__ void PlaceTilesKernel(int64_t tiles, int expert_count,
                                 int32_t* tile_counts, int64_t* begins) {
  for (int e = threadIdx.x; e < expert_count; e += blockDim.x) {
    int32_t before = 0;
    for (int64_t t = 0; t < tiles; ++t) {
      const int32_t count = tile_counts[e * tiles + t];
      tile_counts[e * tiles + t] = before;
      before += count;
    }
    begins[e + 1] = before;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  begins[0] = 0;
  for (int e = 0; e < expert_count; ++e) begins[e + 1] += begins[e];
}

// `limited`: slots that are -1 stay -1.
__global__ void PlaceChoicesKernel(RouteShape shape, int64_t tiles,
                                   bool limited, const int32_t* experts,
                                   const int32_t* tile_counts,
                                   const int64_t* begins, int32_t* slots,
                                   int32_t* sources) {
  __shared__ int32_t chosen[kSortTile];
  const int64_t choices = shape.rows * shape.experts_per_token;
  const int64_t i = GlobalThread();
  const bool is_kept = i < choices && !(limited && slots[i] < 0);
  chosen[threadIdx.x] = is_kept ? experts[i] : -1;
  __syncthreads();
  if (!is_kept) return;
  const int32_t expert = chosen[threadIdx.x];
  int64_t slot = begins[expert] + tile_counts[expert * tiles + blockIdx.x];
  for (int t = 0; t < static_cast<int>(threadIdx.x); ++t) {
    slot += chosen[t] == expert;
  }
  slots[i] = static_cast<int32_t>(slot);
  sources[slot] = static_cast<int32_t>(i / shape.experts_per_token);
}

__global__ void CombineRowsKernel(RouteShape shape, int64_t channels,
                                  const int32_t* slots, const float* weights,
                                  const float* y, float* out) {
  const int64_t k = shape.experts_per_token;
  for (int64_t r = blockIdx.x; r < shape.rows; r += gridDim.x) {
    for (int64_t c = threadIdx.x; c < channels; c += blockDim.x) {
      float sum = 0;
      for (int64_t i = r * k; i < (r + 1) * k; ++i) {
        if (slots[i] < 0) continue;
        const float weight = weights != nullptr ? weights[i] : 1.0f;
        sum += weight * y[slots[i] * channels + c];
      }
      out[r * channels + c] = sum;
    }
  }
}

// One block per choice. No other choice has its slot, so dy may be y.
__global__ void CombineRowsBackwardKernel(RouteShape shape, int64_t channels,
                                          const int32_t* slots,
                                          const float* weights, const float* y,
                                          const float* dout, float* dy,
                                          float* dweights) {
  __shared__ float shared[kWarpSize];
  const int64_t choices = shape.rows * shape.experts_per_token;
  for (int64_t i = blockIdx.x; i < choices; i += gridDim.x) {
    const float* d = dout + i / shape.experts_per_token * channels;
    const int64_t slot = slots[i];
    float dot = 0;
    if (slot >= 0) {
      for (int64_t c = threadIdx.x; c < channels; c += blockDim.x) {
        dot += d[c] * y[slot * channels + c];
      }
    }
    dot = BlockSum(dot, shared);  // Now y's row has been read, too.
    if (threadIdx.x == 0) dweights[i] = dot;
    if (slot < 0) continue;
    for (int64_t c = threadIdx.x; c < channels; c += blockDim.x) {
      dy[slot * channels + c] = weights[i] * d[c];
    }
  }
}

}  // namespace

void Route(cudaStream_t stream, const RouteShape& shape, const float* logits,
           float* probabilities, int32_t* experts, float* weights) {
  if (shape.rows <= 0) return;
  static_assert(kExpertsALane == 8 * sizeof(unsigned));
  ATL_LAUNCH((RouteKernel), ElementBlocks(shape.rows * kWarpSize),
             kBlockThreads, 0, stream, shape, logits, probabilities, experts,
             weights);
}

void RouteBackward(cudaStream_t stream, const RouteShape& shape,
                   const float* probabilities, const int32_t* experts,
                   const float* weights, const float* dweights,
                   const float* balance, float* dlogits) {
  if (shape.rows <= 0) return;
  ATL_LAUNCH((RouteBackwardKernel), ElementBlocks(shape.rows * kWarpSize),
             kBlockThreads, 0, stream, shape, probabilities, experts, weights,
             dweights, balance, dlogits);
}

void AddChoices(cudaStream_t stream, const RouteShape& shape,
                const int32_t* experts, float* counts) {
  ATL_LAUNCH((AddChoicesKernel), static_cast<unsigned>(shape.expert_count),
             kBlockThreads, 0, stream, shape.rows * shape.experts_per_token,
             experts, counts);
}

void CountChoices(cudaStream_t stream, const RouteShape& shape,
                  const int32_t* experts, float* counts) {
  ATL_LAUNCH((CountChoicesKernel), RowBlocks(shape.group_count()),
             kBlockThreads, sizeof(int) * shape.expert_count, stream, shape,
             experts, counts);
}

void PlanDispatch(cudaStream_t stream, const RouteShape& shape,
                  const int32_t* experts, const float* before,
                  int32_t* tile_counts, int32_t* slots, int32_t* sources,
                  int64_t* begins) {
  static_assert(kSortTile == kBlockThreads);
  const bool limited = shape.capacity < shape.group_rows || before != nullptr;
  const int64_t choices = shape.rows * shape.experts_per_token;
  const int64_t tiles = PlanSort(choices, 1).tiles;
  const unsigned blocks = static_cast<unsigned>(tiles);
  const int experts_all = static_cast<int>(shape.expert_count);
  if (limited) {
    ATL_LAUNCH((KeepChoicesKernel), RowBlocks(shape.group_count()),
               kBlockThreads, sizeof(int) * experts_all, stream, shape, experts,
               before, slots);
  }
  ATL_LAUNCH((CountTilesKernel), blocks, kBlockThreads,
             sizeof(int) * experts_all, stream, choices, tiles, experts_all,
             experts, limited ? slots : nullptr, tile_counts);
  ATL_LAUNCH((PlaceTilesKernel), 1u, kBlockThreads, 0, stream, tiles,
             experts_all, tile_counts, begins);
  ATL_LAUNCH((PlaceChoicesKernel), blocks, kBlockThreads, 0, stream, shape,
             tiles, limited, experts, tile_counts, begins, slots, sources);
}

void CombineRows(cudaStream_t stream, const RouteShape& shape, int64_t channels,
                 const int32_t* slots, const float* weights, const float* y,
                 float* out) {
  if (shape.rows <= 0) return;
  ATL_LAUNCH((CombineRowsKernel), RowBlocks(shape.rows), RowThreads(channels),
             0, stream, shape, channels, slots, weights, y, out);
}

void CombineRowsBackward(cudaStream_t stream, const RouteShape& shape,
                         int64_t channels, const int32_t* slots,
                         const float* weights, const float* y,
                         const float* dout, float* dy, float* dweights) {
  const int64_t choices = shape.rows * shape.experts_per_token;
  if (choices <= 0) return;
  ATL_LAUNCH((CombineRowsBackwardKernel), RowBlocks(choices),
             RowThreads(channels), 0, stream, shape, channels, slots, weights,
             y, dout, dy, dweights);
}

}  // namespace atl::engine::cuda
