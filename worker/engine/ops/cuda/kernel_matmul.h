// Matrix products by our own kernel: slow, for any shape.

#pragma once

#include <memory>

#include "worker/engine/ops/cuda/matmul.h"

namespace atl::engine::cuda {

std::unique_ptr<Matmul> MakeKernelMatmul(int device);

}  // namespace atl::engine::cuda
