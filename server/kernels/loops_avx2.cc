#include "server/kernels/loop_table.h"

namespace atl::kernels {
namespace avx2 {

#include "server/kernels/loops.inc"
#include "server/kernels/order_loops.inc"

}  // namespace avx2

const LoopTable& Avx2Loops() {
  static constexpr LoopTable kTable = {
      avx2::SgdStep,
      avx2::MomentumStep,
      avx2::NesterovStep,
      avx2::FedAdamStep,
      avx2::FedYogiStep,
      avx2::FedAdagradStep,
      avx2::DelayedNesterovStep,
      avx2::Scale,
      avx2::Accumulate,
      avx2::CheckAndNorm,
      avx2::AllFinite,
      avx2::SortRows,
      avx2::MeanOfRows,
      avx2::Products,
  };
  return kTable;
}

}  // namespace atl::kernels
