#include "server/kernels/loop_table.h"

namespace atl::kernels {
namespace avx2 {

#include "server/kernels/loops.inc"
#include "server/kernels/order_loops.inc"

}  // namespace avx2

const LoopTable& Avx2Loops() { return avx2::kLoops; }

}  // namespace atl::kernels
