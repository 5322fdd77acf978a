// Norms: one block per row.

#include <cstdint>

#include "worker/engine/ops/cuda/device.h"
#include "worker/engine/ops/cuda/kernels.h"
#include "worker/engine/ops/cuda/plan/launch_plan.h"

namespace atl::engine::cuda {
namespace {

__global__ void AddRmsNormKernel(int64_t rows, int64_t channels, float eps,
                                 const float* x, const float* delta,
                                 const float* gain, float* sum, float* y,
                                 float* rstd) {
  __shared__ float shared[kWarpSize];
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const int64_t row = r * channels;
    float squares = 0;
    for (int64_t c = threadIdx.x; c < channels; c += blockDim.x) {
      const float s =
          delta != nullptr ? x[row + c] + delta[row + c] : x[row + c];
      if (sum != nullptr) sum[row + c] = s;
      squares += s * s;
    }
    squares = BlockSum(squares, shared);
    const float scale =
        1.0f / sqrtf(squares / static_cast<float>(channels) + eps);
    if (threadIdx.x == 0) rstd[r] = scale;
    // `sum` may be x: a thread reads only what it wrote.
    const float* s = sum != nullptr ? sum : x;
    for (int64_t c = threadIdx.x; c < channels; c += blockDim.x) {
      y[row + c] = s[row + c] * scale * gain[c];
    }
  }
}

__global__ void RmsNormBackwardKernel(int64_t rows, int64_t channels,
                                      const float* dy, const float* s,
                                      const float* rstd, const float* gain,
                                      float* ds, bool accumulate) {
  __shared__ float shared[kWarpSize];
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const int64_t row = r * channels;
    const float scale = rstd[r];
    float mean = 0;
    for (int64_t c = threadIdx.x; c < channels; c += blockDim.x) {
      mean += dy[row + c] * gain[c] * (s[row + c] * scale);
    }
    mean = BlockSum(mean, shared) / static_cast<float>(channels);
    for (int64_t c = threadIdx.x; c < channels; c += blockDim.x) {
      const float n = s[row + c] * scale;
      const float value = scale * (dy[row + c] * gain[c] - n * mean);
      ds[row + c] = accumulate ? ds[row + c] + value : value;
    }
  }
}

__global__ void LayerNormKernel(int64_t rows, int64_t channels, float eps,
                                const float* x, const float* gain,
                                const float* bias, float* y, float* mean,
                                float* rstd) {
  __shared__ float shared[kWarpSize];
  const float count = static_cast<float>(channels);
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const int64_t row = r * channels;
    float total = 0;
    for (int64_t c = threadIdx.x; c < channels; c += blockDim.x) {
      total += x[row + c];
    }
    const float middle = BlockSum(total, shared) / count;
    float squares = 0;
    for (int64_t c = threadIdx.x; c < channels; c += blockDim.x) {
      squares += (x[row + c] - middle) * (x[row + c] - middle);
    }
    const float scale = 1.0f / sqrtf(BlockSum(squares, shared) / count + eps);
    if (threadIdx.x == 0) {
      mean[r] = middle;
      rstd[r] = scale;
    }
    for (int64_t c = threadIdx.x; c < channels; c += blockDim.x) {
      y[row + c] = (x[row + c] - middle) * scale * gain[c] + bias[c];
    }
  }
}

__global__ void LayerNormBackwardKernel(int64_t rows, int64_t channels,
                                        const float* dy, const float* x,
                                        const float* mean, const float* rstd,
                                        const float* gain, float* dx,
                                        bool accumulate) {
  __shared__ float shared[kWarpSize];
  const float count = static_cast<float>(channels);
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const int64_t row = r * channels;
    const float middle = mean[r], scale = rstd[r];
    float sum_h = 0, sum_hn = 0;
    for (int64_t c = threadIdx.x; c < channels; c += blockDim.x) {
      const float h = dy[row + c] * gain[c];
      sum_h += h;
      sum_hn += h * ((x[row + c] - middle) * scale);
    }
    const float mean_h = BlockSum(sum_h, shared) / count;
    const float mean_hn = BlockSum(sum_hn, shared) / count;
    for (int64_t c = threadIdx.x; c < channels; c += blockDim.x) {
      const float n = (x[row + c] - middle) * scale;
      const float value =
          scale * (dy[row + c] * gain[c] - mean_h - n * mean_hn);
      dx[row + c] = accumulate ? dx[row + c] + value : value;
    }
  }
}

}  // namespace

void AddRmsNorm(cudaStream_t stream, int64_t rows, int64_t channels, float eps,
                const float* x, const float* delta, const float* gain,
                float* sum, float* y, float* rstd) {
  if (rows <= 0) return;
  ATL_LAUNCH((AddRmsNormKernel), RowBlocks(rows), RowThreads(channels), 0,
             stream, rows, channels, eps, x, delta, gain, sum, y, rstd);
}

void RmsNormBackwardInput(cudaStream_t stream, int64_t rows, int64_t channels,
                          const float* dy, const float* s, const float* rstd,
                          const float* gain, float* ds, bool accumulate) {
  if (rows <= 0) return;
  ATL_LAUNCH((RmsNormBackwardKernel), RowBlocks(rows), RowThreads(channels), 0,
             stream, rows, channels, dy, s, rstd, gain, ds, accumulate);
}

void LayerNorm(cudaStream_t stream, int64_t rows, int64_t channels, float eps,
               const float* x, const float* gain, const float* bias, float* y,
               float* mean, float* rstd) {
  if (rows <= 0) return;
  ATL_LAUNCH((LayerNormKernel), RowBlocks(rows), RowThreads(channels), 0,
             stream, rows, channels, eps, x, gain, bias, y, mean, rstd);
}

void LayerNormBackwardInput(cudaStream_t stream, int64_t rows, int64_t channels,
                            const float* dy, const float* x, const float* mean,
                            const float* rstd, const float* gain, float* dx,
                            bool accumulate) {
  if (rows <= 0) return;
  ATL_LAUNCH((LayerNormBackwardKernel), RowBlocks(rows), RowThreads(channels),
             0, stream, rows, channels, dy, x, mean, rstd, gain, dx,
             accumulate);
}

}  // namespace atl::engine::cuda
