// Matrix products by our own kernel: slow, for any shape.

#ifndef WORKER_ENGINE_OPS_CUDA_KERNEL_MATMUL_H_
#define WORKER_ENGINE_OPS_CUDA_KERNEL_MATMUL_H_

#include <memory>

#include "worker/engine/ops/cuda/matmul.h"

namespace atl::engine::cuda {

std::unique_ptr<Matmul> MakeKernelMatmul(int device);

}  // namespace atl::engine::cuda

#endif  // WORKER_ENGINE_OPS_CUDA_KERNEL_MATMUL_H_
