// The CUDA runtime functions that host code here uses: the toolkit's header.
// Tests define ATL_CUDA_EMULATED and get functions of the same names over host
// memory. So kernels and the code around them also run without a device.

#pragma once

#ifdef ATL_CUDA_EMULATED
#include "worker/engine/ops/cuda/testing/emulated_runtime.h"
#else
#include <cuda_runtime_api.h>
#endif
