// Cross-entropy: a block per row reads logits once for each of loss and
// gradient.

#include <cstdint>

#include "worker/engine/ops/cuda/device.h"
#include "worker/engine/ops/cuda/kernels.h"
#include "worker/engine/ops/cuda/plan/launch_plan.h"

namespace atl::engine::cuda {
namespace {

// The largest of some values, and the sum of exp(value - top).
struct SoftmaxSum {
  float top;
  float sum;
};

// The sum for a new top. exp(-inf - -inf) would be a NaN.
__device__ inline float Rescaled(float sum, float from, float to) {
  return from == to ? sum : sum * expf(from - to);
}

__device__ inline SoftmaxSum Merge(SoftmaxSum a, SoftmaxSum b) {
  const float top = b.top > a.top ? b.top : a.top;
  return {top, Rescaled(a.sum, a.top, top) + Rescaled(b.sum, b.top, top)};
}

// log of a row's sum of exp, for all threads. A NaN logit gives a NaN.
__device__ inline float LogSumExp(int64_t vocab, const float* row,
                                  SoftmaxSum* shared) {
  SoftmaxSum own = {-HUGE_VALF, 0};
  for (int64_t i = threadIdx.x; i < vocab; i += blockDim.x) {
    own = Merge(own, {row[i], 1.0f});
  }
#pragma unroll
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
    const float top = __shfl_xor_sync(kAllLanes, own.top, mask);
    const float sum = __shfl_xor_sync(kAllLanes, own.sum, mask);
    own = Merge(own, {top, sum});
  }
  __syncthreads();  // Other threads may still read `shared`.
  if (threadIdx.x % kWarpSize == 0) shared[threadIdx.x / kWarpSize] = own;
  __syncthreads();
  SoftmaxSum all = shared[0];
  for (int w = 1; w < static_cast<int>(blockDim.x) / kWarpSize; ++w) {
    all = Merge(all, shared[w]);
  }
  return all.top + logf(all.sum);
}

template <bool kBackward>
__global__ void CrossEntropyKernel(int64_t rows, int64_t vocab, float scale,
                                   const float* logits, float* gradient,
                                   const int32_t* targets, float* losses) {
  __shared__ SoftmaxSum shared[kWarpSize];
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const float* row = logits + r * vocab;
    const int64_t target = targets[r];
    const float log_total = LogSumExp(vocab, row, shared);
    if (threadIdx.x == 0) losses[r] = log_total - row[target];
    if (!kBackward) continue;
    __syncthreads();  // Others may still read the target's logit.
    float* out = gradient + r * vocab;
    for (int64_t i = threadIdx.x; i < vocab; i += blockDim.x) {
      const float value = scale * expf(row[i] - log_total);
      out[i] = i == target ? value - scale : value;
    }
  }
}

// The largest of a block's values, for all threads.
__device__ inline float BlockMax(float value, float* shared) {
  value = WarpMax(value);
  __syncthreads();  // Other threads may still read `shared`.
  if (threadIdx.x % kWarpSize == 0) shared[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  value = shared[0];
  for (int w = 1; w < static_cast<int>(blockDim.x) / kWarpSize; ++w) {
    value = shared[w] > value ? shared[w] : value;
  }
  return value;
}

__global__ void LogitTopsKernel(int64_t rows, int64_t count,
                                const float* logits, float* tops) {
  __shared__ float shared[kWarpSize];
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const float* row = logits + r * count;
    float top = row[0];
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
      top = row[i] > top ? row[i] : top;
    }
    top = BlockMax(top, shared);
    if (threadIdx.x == 0) tops[r] = top;
  }
}

__global__ void LogitSumsKernel(int64_t rows, int64_t begin, int64_t count,
                                const float* logits, const int32_t* targets,
                                const float* tops, float* sums,
                                float* target_logits) {
  __shared__ float shared[kWarpSize];
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const float* row = logits + r * count;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
      sum += expf(row[i] - tops[r]);
    }
    sum = BlockSum(sum, shared);
    if (threadIdx.x == 0) {
      const int64_t target = targets[r] - begin;
      sums[r] = sum;
      target_logits[r] = target >= 0 && target < count ? row[target] : 0.0f;
    }
  }
}

__global__ void LogitLossesKernel(int64_t rows, const float* tops,
                                  const float* sums, const float* target_logits,
                                  float* losses) {
  for (int64_t r = GlobalThread(); r < rows; r += GlobalThreads()) {
    losses[r] = tops[r] + logf(sums[r]) - target_logits[r];
  }
}

__global__ void LogitGradientsKernel(int64_t rows, int64_t begin, int64_t count,
                                     float scale, const int32_t* targets,
                                     const float* tops, const float* sums,
                                     float* logits) {
  for (int64_t i = GlobalThread(); i < rows * count; i += GlobalThreads()) {
    const int64_t r = i / count, column = i % count;
    const float value = scale * (expf(logits[i] - tops[r]) / sums[r]);
    logits[i] = column == targets[r] - begin ? value - scale : value;
  }
}

}  // namespace

void CrossEntropy(cudaStream_t stream, int64_t rows, int64_t vocab,
                  const float* logits, const int32_t* targets, float* losses) {
  if (rows <= 0) return;
  float* const none = nullptr;
  ATL_LAUNCH((CrossEntropyKernel<false>), RowBlocks(rows), RowThreads(vocab), 0,
             stream, rows, vocab, 1.0f, logits, none, targets, losses);
}

void CrossEntropyBackward(cudaStream_t stream, int64_t rows, int64_t vocab,
                          float scale, float* logits, const int32_t* targets,
                          float* losses) {
  if (rows <= 0) return;
  ATL_LAUNCH((CrossEntropyKernel<true>), RowBlocks(rows), RowThreads(vocab), 0,
             stream, rows, vocab, scale, logits, logits, targets, losses);
}

void LogitTops(cudaStream_t stream, int64_t rows, int64_t count,
               const float* logits, float* tops) {
  if (rows <= 0) return;
  ATL_LAUNCH((LogitTopsKernel), RowBlocks(rows), RowThreads(count), 0, stream,
             rows, count, logits, tops);
}

void LogitSums(cudaStream_t stream, int64_t rows, int64_t begin, int64_t count,
               const float* logits, const int32_t* targets, const float* tops,
               float* sums, float* target_logits) {
  if (rows <= 0) return;
  ATL_LAUNCH((LogitSumsKernel), RowBlocks(rows), RowThreads(count), 0, stream,
             rows, begin, count, logits, targets, tops, sums, target_logits);
}

void LogitLosses(cudaStream_t stream, int64_t rows, const float* tops,
                 const float* sums, const float* target_logits, float* losses) {
  if (rows <= 0) return;
  ATL_LAUNCH((LogitLossesKernel), ElementBlocks(rows), kBlockThreads, 0, stream,
             rows, tops, sums, target_logits, losses);
}

void LogitGradients(cudaStream_t stream, int64_t rows, int64_t begin,
                    int64_t count, float scale, const int32_t* targets,
                    const float* tops, const float* sums, float* logits) {
  if (rows <= 0) return;
  ATL_LAUNCH((LogitGradientsKernel), ElementBlocks(rows * count), kBlockThreads,
             0, stream, rows, begin, count, scale, targets, tops, sums, logits);
}

}  // namespace atl::engine::cuda
