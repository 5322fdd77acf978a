// The part of the CUDA runtime that host code here uses.
//
// The toolkit's own header, or in tests, which are compiled with
// ATL_CUDA_EMULATED, a few functions of the same names over host memory: so the
// code around kernels, and the kernels themselves, run on machines without a
// device too.

#ifndef WORKER_ENGINE_OPS_CUDA_RUNTIME_H_
#define WORKER_ENGINE_OPS_CUDA_RUNTIME_H_

#ifdef ATL_CUDA_EMULATED
#include "worker/engine/ops/cuda/testing/emulated_runtime.h"
#else
#include <cuda_runtime_api.h>
#endif

#endif  // WORKER_ENGINE_OPS_CUDA_RUNTIME_H_
