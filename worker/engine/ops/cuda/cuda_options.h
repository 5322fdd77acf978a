// What a device's operations may use.
//
// Pure.

#ifndef WORKER_ENGINE_OPS_CUDA_CUDA_OPTIONS_H_
#define WORKER_ENGINE_OPS_CUDA_CUDA_OPTIONS_H_

namespace atl::engine::cuda {

struct CudaOptions {
  // Steps that can be are recorded as CUDA graphs and replayed.
  bool graphs = true;
  // Attention of bfloat16 operands is a library's, for the shapes that it does.
  bool fused_attention = true;
};

}  // namespace atl::engine::cuda

#endif  // WORKER_ENGINE_OPS_CUDA_CUDA_OPTIONS_H_
