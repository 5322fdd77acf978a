#include "server/kernels/loop_table.h"

namespace atl::kernels {
namespace avx512 {

#include "server/kernels/loops.inc"
#include "server/kernels/order_loops.inc"

}  // namespace avx512

const LoopTable& Avx512Loops() { return avx512::kLoops; }

}  // namespace atl::kernels
