#include "server/merge/kernel_table.h"

#include "server/kernels/loop_table.h"
#include "server/kernels/outer_steps.h"

namespace atl::server {
namespace {

using kernels::BestLoops;

kernels::AdaptiveConstants<float> ToKernel(const OuterKernels::Adaptive& c) {
  return {c.lr, c.beta1, c.one_minus_beta1, c.beta2, c.one_minus_beta2, c.tau};
}

kernels::InOut<float> Theta(const OuterTile& t) {
  return {t.old_theta != nullptr ? t.old_theta : t.theta, t.theta};
}

kernels::InOut<float> State(const OuterTile& t, int i) {
  return {t.old_state[i] != nullptr ? t.old_state[i] : t.state[i], t.state[i]};
}

class OuterTable final : public OuterKernels {
 public:
  void Sgd(float lr, const OuterTile& t) const override {
    BestLoops().sgd(t.count, lr, t.gradient, Theta(t));
  }
  void Momentum(float lr, float momentum, const OuterTile& t) const override {
    BestLoops().momentum(t.count, lr, momentum, t.gradient, Theta(t),
                         State(t, 0));
  }
  void Nesterov(float lr, float momentum, const OuterTile& t) const override {
    BestLoops().nesterov(t.count, lr, momentum, t.gradient, Theta(t),
                         State(t, 0));
  }
  void FedAdam(const Adaptive& c, const OuterTile& t) const override {
    BestLoops().fed_adam(t.count, ToKernel(c), t.gradient, Theta(t),
                         State(t, 0), State(t, 1));
  }
  void FedYogi(const Adaptive& c, const OuterTile& t) const override {
    BestLoops().fed_yogi(t.count, ToKernel(c), t.gradient, Theta(t),
                         State(t, 0), State(t, 1));
  }
  void FedAdagrad(const Adaptive& c, const OuterTile& t) const override {
    BestLoops().fed_adagrad(t.count, ToKernel(c), t.gradient, Theta(t),
                            State(t, 0), State(t, 1));
  }
  void DelayedNesterov(const Delayed& c, bool flush,
                       const OuterTile& t) const override {
    BestLoops().delayed_nesterov(
        t.count, {c.lr, c.momentum, c.buffer_count, c.carried, c.flushed},
        flush, t.gradient, Theta(t), State(t, 0), State(t, 1));
  }
};

class MergeTable final : public MergeKernels {
 public:
  void Scale(int64_t n, float weight, const float* x,
             float* sum) const override {
    BestLoops().scale(n, weight, x, sum);
  }
  void Accumulate(int64_t n, float weight, const float* x,
                  float* sum) const override {
    BestLoops().accumulate(n, weight, x, sum);
  }
  void SortRows(int64_t n, int row_count, float* const* rows) const override {
    BestLoops().sort_rows(n, row_count, rows);
  }
  void MeanOfRows(int64_t n, int row_count, const float* const* rows,
                  float* mean) const override {
    BestLoops().mean_of_rows(n, row_count, rows, mean);
  }
  void Products(int64_t n, int row_count, const float* const* rows,
                double* products) const override {
    BestLoops().products(n, row_count, rows, products);
  }
};

}  // namespace

const OuterKernels& FastOuterKernels() {
  static const OuterTable table;
  return table;
}

const MergeKernels& FastMergeKernels() {
  static const MergeTable table;
  return table;
}

}  // namespace atl::server
