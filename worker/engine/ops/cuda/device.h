// Code that kernels share; only for .cu files. nvcc compiles the kernels for a
// device. In tests g++ compiles them and testing/emulator.h runs them on the
// host.

#pragma once

#include <cstdint>

#ifdef __CUDACC__

#include <cuda_runtime.h>

#define ATL_DYNAMIC_SHARED(T, name)                           \
  extern __shared__ __align__(16) unsigned char atl_shared[]; \
  T* const name = reinterpret_cast<T*>(atl_shared)
// Parentheses around `kernel` allow commas in its name.
#define ATL_KERNEL_NAME(...) __VA_ARGS__
#define ATL_LAUNCH(kernel, grid, block, shared, stream, ...) \
  ATL_KERNEL_NAME kernel<<<grid, block, shared, stream>>>(__VA_ARGS__)
// Requests more than 48 KiB of shared memory. The launch returns any error.
#define ATL_ALLOW_SHARED(kernel, bytes)                                   \
  (void)cudaFuncSetAttribute(ATL_KERNEL_NAME kernel,                      \
                             cudaFuncAttributeMaxDynamicSharedMemorySize, \
                             static_cast<int>(bytes))

#else
#include "worker/engine/ops/cuda/testing/emulator.h"
#endif

namespace atl::engine::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kWarpSize = 32;

__device__ inline int64_t GlobalThread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t GlobalThreads() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// a / b and a % b of numbers >= 0, in 32 bits if possible: a 64-bit division
// takes several times as long.
struct Divided {
  int64_t quotient, rest;
};
__device__ inline Divided Divide(int64_t a, int64_t b) {
  if (((a | b) >> 32) == 0) {
    const uint32_t x = static_cast<uint32_t>(a), y = static_cast<uint32_t>(b);
    return {x / y, x % y};
  }
  return {a / b, a % b};
}

// Over a warp, or aligned groups of `kWidth` lanes. All lanes get the same
// bits.
template <int kWidth = kWarpSize, typename T>
__device__ inline T WarpSum(T value) {
#pragma unroll
  for (int mask = kWidth / 2; mask > 0; mask /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, mask);
  }
  return value;
}
template <int kWidth = kWarpSize, typename T>
__device__ inline T WarpMax(T value) {
#pragma unroll
  for (int mask = kWidth / 2; mask > 0; mask /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, mask);
    value = other > value ? other : value;
  }
  return value;
}

// Sum over a one-dimensional block, warp by warp. All threads get the same
// bits. `shared` [32] may be reused after the next call or barrier.
template <typename T>
__device__ inline T BlockSum(T value, T* shared) {
  value = WarpSum(value);
  const int warps = blockDim.x / kWarpSize;
  __syncthreads();  // Other threads may still read `shared`.
  if (threadIdx.x % kWarpSize == 0) shared[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  T sum = 0;
  for (int w = 0; w < warps; ++w) sum += shared[w];
  return sum;
}

// To the nearest, ties to even; a NaN stays a NaN.
__device__ inline uint16_t ToBf16(float x) {
  const uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
__device__ inline float FromBf16(uint16_t x) {
  return __uint_as_float(static_cast<uint32_t>(x) << 16);
}

}  // namespace atl::engine::cuda
