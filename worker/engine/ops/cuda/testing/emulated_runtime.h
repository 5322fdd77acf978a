// Functions of the CUDA runtime over host memory, for tests. Everything is
// done at once, so that a stream is nothing. Thread-compatible.
//
// A fault can be planned: the n-th call from now fails.

#ifndef WORKER_ENGINE_OPS_CUDA_TESTING_EMULATED_RUNTIME_H_
#define WORKER_ENGINE_OPS_CUDA_TESTING_EMULATED_RUNTIME_H_

#include <cstddef>

// Names and values of the toolkit.
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNoDevice = 100,
  cudaErrorIllegalAddress = 700,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
};
struct CUstream_st;
using cudaStream_t = CUstream_st*;
inline constexpr unsigned cudaStreamNonBlocking = 1;

cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes,
                            cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaGetLastError();
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceCount(int* count);
const char* cudaGetErrorString(cudaError_t error);

namespace atl::engine::emulator {

// Of cudaMalloc: the most that may be allocated at a time.
void SetMemoryLimit(size_t bytes);
// Allocated now.
size_t AllocatedBytes();
// The `countdown`-th launch of a kernel from now (1: the next) fails with
// `error`, which cudaGetLastError then gives once. 0: none does.
void FailLaunch(int countdown, cudaError_t error);

}  // namespace atl::engine::emulator

#endif  // WORKER_ENGINE_OPS_CUDA_TESTING_EMULATED_RUNTIME_H_
