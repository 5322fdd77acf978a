#include "server/kernels/loop_table.h"

namespace atl::kernels {
namespace avx512 {

#include "server/kernels/loops.inc"
#include "server/kernels/order_loops.inc"

}  // namespace avx512

const LoopTable& Avx512Loops() {
  static constexpr LoopTable kTable = {
      avx512::SgdStep,
      avx512::MomentumStep,
      avx512::NesterovStep,
      avx512::FedAdamStep,
      avx512::FedYogiStep,
      avx512::FedAdagradStep,
      avx512::DelayedNesterovStep,
      avx512::Scale,
      avx512::Accumulate,
      avx512::CheckAndNorm,
      avx512::AllFinite,
      avx512::SortRows,
      avx512::MeanOfRows,
      avx512::Products,
  };
  return kTable;
}

}  // namespace atl::kernels
