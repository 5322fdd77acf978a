// Matrix products with any strides, in tiles of 16 x 16: for tests, and for
// shapes without a cuBLASLt algorithm.

#include <cstdint>

#include "worker/engine/ops/cuda/device.h"
#include "worker/engine/ops/cuda/kernels.h"

namespace atl::engine::cuda {
namespace {

constexpr int kTile = 16;

template <bool kBf16>
__device__ inline float Read(const ProductOperand& operand, int64_t outer,
                             int64_t inner) {
  const int64_t at = outer * operand.outer_step + inner * operand.inner_step;
  if (kBf16) return FromBf16(static_cast<const uint16_t*>(operand.data)[at]);
  return static_cast<const float*>(operand.data)[at];
}

template <bool kBf16>
__global__ void ProductKernel(int64_t rows, int64_t columns, int64_t inner,
                              ProductOperand a, ProductOperand b, float* c,
                              bool accumulate) {
  __shared__ float left[kTile][kTile + 1];
  __shared__ float right[kTile][kTile + 1];
  const int64_t column_tiles = (columns + kTile - 1) / kTile;
  const int64_t row_tile = blockIdx.x / column_tiles * kTile;
  const int64_t column_tile = blockIdx.x % column_tiles * kTile;
  const int64_t i = row_tile + threadIdx.y, j = column_tile + threadIdx.x;
  float sum = 0;
  for (int64_t k = 0; k < inner; k += kTile) {
    const bool has_left = i < rows && k + threadIdx.x < inner;
    const bool has_right =
        column_tile + threadIdx.y < columns && k + threadIdx.x < inner;
    left[threadIdx.y][threadIdx.x] =
        has_left ? Read<kBf16>(a, i, k + threadIdx.x) : 0.0f;
    right[threadIdx.y][threadIdx.x] =
        has_right ? Read<kBf16>(b, column_tile + threadIdx.y, k + threadIdx.x)
                  : 0.0f;
    __syncthreads();
#pragma unroll
    for (int n = 0; n < kTile; ++n) {
      sum = fmaf(left[threadIdx.y][n], right[threadIdx.x][n], sum);
    }
    __syncthreads();
  }
  if (i >= rows || j >= columns) return;
  float* const to = c + i * columns + j;
  *to = accumulate ? *to + sum : sum;
}

}  // namespace

void Product(cudaStream_t stream, int64_t rows, int64_t columns, int64_t inner,
             const ProductOperand& a, const ProductOperand& b, bool is_bf16,
             float* c, bool accumulate) {
  if (rows <= 0 || columns <= 0) return;
  const unsigned blocks = static_cast<unsigned>(
      ((rows + kTile - 1) / kTile) * ((columns + kTile - 1) / kTile));
  const dim3 block(kTile, kTile);
  if (is_bf16) {
    ATL_LAUNCH((ProductKernel<true>), blocks, block, 0, stream, rows, columns,
               inner, a, b, c, accumulate);
  } else {
    ATL_LAUNCH((ProductKernel<false>), blocks, block, 0, stream, rows, columns,
               inner, a, b, c, accumulate);
  }
}

}  // namespace atl::engine::cuda
