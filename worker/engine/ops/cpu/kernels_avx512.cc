// The kernels with 16 lanes: AVX-512 F, BW, DQ and VL.

#include "worker/engine/ops/cpu/kernel_table-inl.h"

namespace atl::engine {

const Kernels& Avx512Kernels() {
  static constexpr Kernels kKernels = avx512::MakeKernels("avx512");
  return kKernels;
}

}  // namespace atl::engine
