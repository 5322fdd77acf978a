#include "server/kernels/loop_table.h"

namespace atl::kernels {

bool HasAvx512() {
  return __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

const LoopTable& BestLoops() {
  static const LoopTable& best = HasAvx512() ? Avx512Loops() : Avx2Loops();
  return best;
}

}  // namespace atl::kernels
