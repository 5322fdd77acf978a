// Runs CUDA kernels on the host, so tests can check them without a device. Has
// the parts of CUDA C++ that our kernels use. For tests; thread-hostile.
//
// One host thread runs the blocks one after the other. A block's threads are
// coroutines that switch at barriers and at exchanges within a warp, in the
// order from SetOrder; a kernel whose result depends on it lacks a barrier. The
// process ends if not all threads of a block (or warp) reach a barrier, or if a
// kernel uses more shared memory than it requested.
//
// Does not show speed, races between blocks, or how nvcc compiles.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#include "worker/engine/ops/cuda/testing/emulated_runtime.h"

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

struct float4 {
  float x, y, z, w;
};

// Indices and sizes of the current thread.
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __shared__ static
#define __launch_bounds__(...)

namespace atl::engine::emulator {

enum class Order { kRising, kFalling, kShuffled };
void SetOrder(Order order);

void Launch(dim3 grid, dim3 block, size_t shared_bytes,
            const std::function<void()>& thread);

void SyncThreads();
void SyncWarp();
// The block's dynamic shared memory.
void* DynamicShared();

inline constexpr int kWarp = 32;
int Lane();
// 64 bytes per lane of the current warp. The two barriers of an exchange keep
// the next one from overtaking it.
char* LaneSlot(int lane);

template <typename T>
T Exchange(T value, int source_lane) {
  static_assert(sizeof(T) <= 64);
  std::memcpy(LaneSlot(Lane()), &value, sizeof(T));
  SyncWarp();
  std::memcpy(&value, LaneSlot(source_lane), sizeof(T));
  SyncWarp();
  return value;
}

// Each lane gets all lanes' values.
template <typename T>
void ExchangeAll(const T& own, T (&all)[kWarp]) {
  static_assert(sizeof(T) <= 64);
  std::memcpy(LaneSlot(Lane()), &own, sizeof(T));
  SyncWarp();
  for (int lane = 0; lane < kWarp; ++lane) {
    std::memcpy(&all[lane], LaneSlot(lane), sizeof(T));
  }
  SyncWarp();
}

}  // namespace atl::engine::emulator

inline void __syncthreads() { atl::engine::emulator::SyncThreads(); }
inline void __syncwarp() { atl::engine::emulator::SyncWarp(); }

template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return atl::engine::emulator::Exchange(value,
                                         atl::engine::emulator::Lane() ^ mask);
}

template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  return atl::engine::emulator::Exchange(value, lane);
}

inline int atomicAdd(int* target, int value) {
  const int before = *target;
  *target += value;
  return before;
}

inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

#define ATL_DYNAMIC_SHARED(T, name) \
  T* const name = static_cast<T*>(::atl::engine::emulator::DynamicShared())
// Parentheses around `kernel` allow commas in its name.
#define ATL_KERNEL_NAME(...) __VA_ARGS__
#define ATL_LAUNCH(kernel, grid, block, shared, stream, ...) \
  ::atl::engine::emulator::Launch(                           \
      grid, block, shared, [=]() { ATL_KERNEL_NAME kernel(__VA_ARGS__); })
#define ATL_ALLOW_SHARED(kernel, bytes) ((void)(bytes))
