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

void SgdStep(int64_t n, float lr, const float* g, InOut<float> theta) {
  BestLoops().sgd(n, lr, g, theta);
}

void MomentumStep(int64_t n, float lr, float momentum, const float* g,
                  InOut<float> theta, InOut<float> m) {
  BestLoops().momentum(n, lr, momentum, g, theta, m);
}

void NesterovStep(int64_t n, float lr, float momentum, const float* g,
                  InOut<float> theta, InOut<float> m) {
  BestLoops().nesterov(n, lr, momentum, g, theta, m);
}

void FedAdamStep(int64_t n, const AdaptiveConstants<float>& c, const float* g,
                 InOut<float> theta, InOut<float> m, InOut<float> v) {
  BestLoops().fed_adam(n, c, g, theta, m, v);
}

void FedYogiStep(int64_t n, const AdaptiveConstants<float>& c, const float* g,
                 InOut<float> theta, InOut<float> m, InOut<float> v) {
  BestLoops().fed_yogi(n, c, g, theta, m, v);
}

void FedAdagradStep(int64_t n, const AdaptiveConstants<float>& c,
                    const float* g, InOut<float> theta, InOut<float> m,
                    InOut<float> v) {
  BestLoops().fed_adagrad(n, c, g, theta, m, v);
}

void DelayedNesterovStep(int64_t n, const DelayedConstants<float>& c,
                         bool flush, const float* g, InOut<float> theta,
                         InOut<float> m, InOut<float> sum) {
  BestLoops().delayed_nesterov(n, c, flush, g, theta, m, sum);
}

void Scale(int64_t n, float weight, const float* x, float* sum) {
  BestLoops().scale(n, weight, x, sum);
}

void Accumulate(int64_t n, float weight, const float* x, float* sum) {
  BestLoops().accumulate(n, weight, x, sum);
}

NormResult CheckAndNorm(int64_t n, const UnalignedF32* x) {
  return BestLoops().check_and_norm(n, x);
}

bool AllFinite(int64_t n, const float* x) {
  return BestLoops().all_finite(n, x);
}

void SortRows(int64_t n, int row_count, float* const* rows) {
  BestLoops().sort_rows(n, row_count, rows);
}

void MeanOfRows(int64_t n, int row_count, const float* const* rows,
                float* mean) {
  BestLoops().mean_of_rows(n, row_count, rows, mean);
}

void Products(int64_t n, int row_count, const float* const* rows,
              double* products) {
  BestLoops().products(n, row_count, rows, products);
}

}  // namespace atl::kernels
