// What the kernels share. For .cu files alone.
//
// nvcc compiles them for a device. In tests g++ compiles the same files and
// testing/emulator.h runs them on the host.

#ifndef WORKER_ENGINE_OPS_CUDA_DEVICE_H_
#define WORKER_ENGINE_OPS_CUDA_DEVICE_H_

#include <cstdint>

#ifdef __CUDACC__

#include <cuda_runtime.h>

#define ATL_DYNAMIC_SHARED(T, name)                           \
  extern __shared__ __align__(16) unsigned char atl_shared[]; \
  T* const name = reinterpret_cast<T*>(atl_shared)
// `kernel` in brackets: its name may have commas.
#define ATL_KERNEL_NAME(...) __VA_ARGS__
#define ATL_LAUNCH(kernel, grid, block, shared, stream, ...) \
  ATL_KERNEL_NAME kernel<<<grid, block, shared, stream>>>(__VA_ARGS__)
// More than 48 KiB have to be asked for. An error comes back with the launch.
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

// The thread's number in a grid of one dimension.
__device__ inline int64_t GlobalThread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t GlobalThreads() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// a / b and a % b of numbers >= 0: divisions of 64 bits take several times as
// long, and most shapes need none.
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

// Sums and maxima over the lanes of a warp, or of aligned groups of `kWidth`
// lanes; all lanes get the same bits.
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

// Sum over a block of one dimension, in the order of warps; all threads get the
// same bits. `shared` [32] may be used again after the next call or barrier.
template <typename T>
__device__ inline T BlockSum(T value, T* shared) {
  value = WarpSum(value);
  const int warps = blockDim.x / kWarpSize;
  __syncthreads();  // Of what was read in `shared` before.
  if (threadIdx.x % kWarpSize == 0) shared[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  T sum = 0;
  for (int w = 0; w < warps; ++w) sum += shared[w];
  return sum;
}

// bfloat16 by bits: to the nearest, ties to even; a NaN stays one.
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

#endif  // WORKER_ENGINE_OPS_CUDA_DEVICE_H_
