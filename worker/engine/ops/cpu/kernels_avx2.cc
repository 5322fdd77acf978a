// The kernels for the minimum machine: AVX2 and FMA.

#include "worker/engine/ops/cpu/kernel_table-inl.h"

namespace atl::engine {

const Kernels& Avx2Kernels() {
  static constexpr Kernels kKernels = avx2::MakeKernels("avx2");
  return kKernels;
}

}  // namespace atl::engine
