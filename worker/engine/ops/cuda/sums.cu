// Sums over rows and over vectors, each as a fixed tree.

#include <cstdint>

#include "worker/engine/ops/cuda/device.h"
#include "worker/engine/ops/cuda/kernels.h"
#include "worker/engine/ops/cuda/plan/launch_plan.h"

namespace atl::engine::cuda {
namespace {

constexpr int kColumns = 32;    // Per block.
constexpr int kRowsAtOnce = 8;  // Per block.

struct Terms {
  int64_t channels;
  const float *dy, *x, *mean, *rstd;
  __device__ float At(int64_t r, int64_t c) const {
    const int64_t i = r * channels + c;
    if (x == nullptr) return dy[i];
    if (mean == nullptr) return dy[i] * (x[i] * rstd[r]);
    return dy[i] * ((x[i] - mean[r]) * rstd[r]);
  }
};

// partial[tile, c] = sum over the tile's rows: 8 threads sum some rows each,
// and their sums are added in order.
__global__ void SumTilesKernel(int64_t rows, int64_t tile_rows, Terms terms,
                               float* partial) {
  __shared__ float shared[kRowsAtOnce][kColumns];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kColumns + threadIdx.x;
  const int64_t begin = blockIdx.y * tile_rows;
  const int64_t end = begin + tile_rows < rows ? begin + tile_rows : rows;
  float sum = 0;
  if (c < terms.channels) {
    for (int64_t r = begin + threadIdx.y; r < end; r += kRowsAtOnce) {
      sum += terms.At(r, c);
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= terms.channels) return;
  for (int i = 1; i < kRowsAtOnce; ++i) sum += shared[i][threadIdx.x];
  partial[blockIdx.y * terms.channels + c] = sum;
}

__global__ void SumPartialsKernel(int64_t tiles, int64_t channels,
                                  const float* partial, float* out,
                                  bool accumulate) {
  for (int64_t c = GlobalThread(); c < channels; c += GlobalThreads()) {
    float sum = 0;
    for (int64_t t = 0; t < tiles; ++t) sum += partial[t * channels + c];
    out[c] = accumulate ? out[c] + sum : sum;
  }
}

__global__ void SumBlocksKernel(int64_t n, int64_t elements, const float* x,
                                bool squares, double* partial) {
  __shared__ double shared[kWarpSize];
  const int64_t begin = blockIdx.x * elements;
  const int64_t end = begin + elements < n ? begin + elements : n;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    const double value = static_cast<double>(x[i]);
    sum += squares ? value * value : value;
  }
  sum = BlockSum(sum, shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void SumOfPartialsKernel(int64_t blocks, const double* partial,
                                    double* result) {
  __shared__ double shared[kWarpSize];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < blocks; i += blockDim.x) sum += partial[i];
  sum = BlockSum(sum, shared);
  if (threadIdx.x == 0) *result = sum;
}

// ClipScale's formula. One warp, of which one thread computes.
__global__ void ClipKernel(const double* sums, double clip_norm, float* scale) {
  if (threadIdx.x != 0) return;
  const double norm = sqrt(sums[1]);
  // A NaN if a sum is not finite.
  const double unknown = (sums[0] - sums[0]) + (norm - norm);
  double factor = 1.0;
  if (clip_norm > 0 && clip_norm / (norm + 1e-6) < 1.0) {
    factor = clip_norm / (norm + 1e-6);
  }
  *scale = static_cast<float>(unknown == 0 ? factor : unknown);
}

}  // namespace

void SumColumns(cudaStream_t stream, int64_t rows, int64_t channels,
                const float* dy, const float* x, const float* mean,
                const float* rstd, float* partial, float* out,
                bool accumulate) {
  if (channels <= 0) return;
  const RowTiles tiles = PlanRowTiles(rows);
  const dim3 grid(static_cast<unsigned>((channels + kColumns - 1) / kColumns),
                  static_cast<unsigned>(tiles.tiles));
  ATL_LAUNCH((SumTilesKernel), grid, dim3(kColumns, kRowsAtOnce), 0, stream,
             rows, tiles.rows, (Terms{channels, dy, x, mean, rstd}), partial);
  ATL_LAUNCH((SumPartialsKernel), ElementBlocks(channels), kBlockThreads, 0,
             stream, tiles.tiles, channels, partial, out, accumulate);
}

void SumElements(cudaStream_t stream, int64_t n, const float* x, bool squares,
                 double* partial, double* result) {
  const SumBlocks plan = PlanSum(n);
  ATL_LAUNCH((SumBlocksKernel), static_cast<unsigned>(plan.blocks),
             kBlockThreads, 0, stream, n, plan.elements, x, squares, partial);
  ATL_LAUNCH((SumOfPartialsKernel), 1u, kBlockThreads, 0, stream, plan.blocks,
             partial, result);
}

void ClipInto(cudaStream_t stream, const double* sums, double clip_norm,
              float* scale) {
  ATL_LAUNCH((ClipKernel), 1u, kWarpSize, 0, stream, sums, clip_norm, scale);
}

}  // namespace atl::engine::cuda
