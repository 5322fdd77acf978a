#include "worker/engine/model/mixture.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/engine/model/mlp.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/model/parts.h"
#include "worker/engine/model/workspace.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {
namespace {

template <typename T>
class Mixture final : public Mlp<T> {
 public:
  Mixture(const ModelConfig& config, const ParameterLayout& layout,
          int64_t layer)
      : channels_(config.hidden_size),
        inner_(config.intermediate_size),
        expert_count_(config.expert_count),
        experts_per_token_(config.experts_per_token) {
    const std::string prefix =
        absl::StrCat("model.layers.", layer, ".block_sparse_moe.");
    router_ = {.in = channels_,
               .out = expert_count_,
               .weight = OffsetInUnit(layout, prefix + "gate.weight")};
    for (int64_t e = 0; e < expert_count_; ++e) {
      const std::string expert = absl::StrCat(prefix, "experts.", e, ".");
      gate_up_.push_back(
          {.in = channels_,
           .out = 2 * inner_,
           .weight = OffsetInUnit(layout, expert + "w1.weight")});
      down_.push_back({.in = inner_,
                       .out = channels_,
                       .weight = OffsetInUnit(layout, expert + "w2.weight")});
    }
  }

  void TakeSaved(int64_t rows, Arena& saved) const override {
    Take(rows, saved);
  }
  const T* bias(const T*) const override { return nullptr; }

  void Forward(Workspace<T>& work, const T* parameters, int64_t rows,
               const T* x, Arena& saved, T* delta,
               const RouterTotals<T>& totals) const override {
    const State s = Take(rows, saved);
    const RouteShape shape = ShapeOf(work.config, rows);
    // The logits are not kept: the probabilities say all.
    T* const logits = work.router_gradient.data;
    ForwardLinear(work, router_, parameters, rows, x, logits);
    work.ops.Route(shape, logits, s.probabilities, s.experts, s.weights);
    work.ops.AddRouteTotals(shape, s.probabilities, s.experts, totals.counts,
                            totals.sums);
    work.ops.PlanDispatch(shape, s.experts, s.slots, s.sources, s.begins);
    const std::vector<int64_t>& begins = FetchBegins(work, s);
    work.ops.GatherRows(begins[expert_count_], channels_, s.sources, x,
                        s.gathered);
    for (int64_t e = 0; e < expert_count_; ++e) {
      const int64_t at = begins[e], count = begins[e + 1] - at;
      if (count == 0) continue;
      T* const gate_up = s.gate_up + at * 2 * inner_;
      T* const swiglu = s.swiglu + at * inner_;
      ForwardLinear(work, gate_up_[e], parameters, count,
                    static_cast<const T*>(s.gathered + at * channels_),
                    gate_up);
      work.ops.SwiGlu(count, inner_, gate_up, swiglu);
      ForwardLinear(work, down_[e], parameters, count,
                    static_cast<const T*>(swiglu), s.out + at * channels_);
    }
    work.ops.CombineRows(shape, channels_, s.slots, s.weights, s.out, delta);
  }

  void Backward(Workspace<T>& work, const T* parameters, int64_t rows,
                const T* x, Arena& saved, const T* dout,
                const RouterTotals<T>& totals, T* dx, T* gradients,
                bool accumulate) const override {
    const State s = Take(rows, saved);
    const RouteShape shape = ShapeOf(work.config, rows);
    T* const dchoices = work.choice_gradient.data;
    work.ops.CombineRowsBackward(shape, channels_, s.slots, s.weights, s.out,
                                 dout, s.out, dchoices);
    FetchBegins(work, s);
    for (int64_t e = 0; e < expert_count_; ++e) {
      BackwardExpert(work, parameters, e, s, gradients, accumulate);
    }
    work.ops.CombineRows(shape, channels_, s.slots, nullptr,
                         work.expert_gradient.data, dx);
    SetBalance(work, rows, totals);
    T* const dlogits = work.router_gradient.data;
    work.ops.RouteBackward(shape, s.probabilities, s.experts, s.weights,
                           dchoices, work.balance, dlogits);
    T* const drouter = work.row_gradient.data;
    BackwardLinear(work, router_, parameters, rows, x,
                   static_cast<const T*>(dlogits), drouter, gradients,
                   accumulate);
    work.ops.AddRows(rows, channels_, dx, drouter, nullptr, dx);
  }

 private:
  struct State {
    T* probabilities;  // [R, E]
    T* weights;        // [R, K]
    int32_t* experts;  // [R, K]
    int32_t* slots;    // [R, K]
    int32_t* sources;  // [S]
    int64_t* begins;   // [E + 1]
    T* gathered;       // [S, C], by slot
    T* gate_up;        // [S, 2 F]; backward puts the gradient there
    T* swiglu;         // [S, F]
    T* out;            // [S, C]; backward puts the gradient there
  };
  State Take(int64_t rows, Arena& saved) const {
    const int64_t choices = rows * experts_per_token_;
    State s;
    s.probabilities = saved.Take<T>(rows * expert_count_);
    s.weights = saved.Take<T>(choices);
    s.experts = saved.Take<int32_t>(choices);
    s.slots = saved.Take<int32_t>(choices);
    s.sources = saved.Take<int32_t>(choices);
    s.begins = saved.Take<int64_t>(expert_count_ + 1);
    s.gathered = saved.Take<T>(choices * channels_);
    s.gate_up = saved.Take<T>(choices * 2 * inner_);
    s.swiglu = saved.Take<T>(choices * inner_);
    s.out = saved.Take<T>(choices * channels_);
    return s;
  }

  RouteShape ShapeOf(const ModelConfig& config, int64_t rows) const {
    RouteShape shape{.rows = rows,
                     .expert_count = expert_count_,
                     .experts_per_token = experts_per_token_,
                     .capacity = rows};
    if (config.expert_capacity_factor > 0) {
      const double share = config.expert_capacity_factor *
                           static_cast<double>(rows * experts_per_token_) /
                           static_cast<double>(expert_count_);
      if (share < static_cast<double>(rows)) {
        shape.capacity = static_cast<int64_t>(std::ceil(share));
      }
    }
    return shape;
  }

  // Into work.slot_begins, where the host can read them.
  const std::vector<int64_t>& FetchBegins(Workspace<T>& work,
                                          const State& s) const {
    work.ops.ToHost(sizeof(int64_t) * (expert_count_ + 1), s.begins,
                    work.slot_begins.data());
    return work.slot_begins;
  }

  // The gradients of one expert, and of what it was given.
  void BackwardExpert(Workspace<T>& work, const T* parameters, int64_t e,
                      const State& s, T* gradients, bool accumulate) const {
    const int64_t at = work.slot_begins[e];
    const int64_t count = work.slot_begins[e + 1] - at;
    if (count == 0) {
      if (accumulate) return;
      work.ops.SetZero(gate_up_[e].in * gate_up_[e].out,
                       gradients + gate_up_[e].weight);
      work.ops.SetZero(down_[e].in * down_[e].out, gradients + down_[e].weight);
      return;
    }
    T* const gate_up = s.gate_up + at * 2 * inner_;
    T* const dswiglu = work.part_gradient.data;
    BackwardLinear(work, down_[e], parameters, count,
                   static_cast<const T*>(s.swiglu + at * inner_),
                   static_cast<const T*>(s.out + at * channels_), dswiglu,
                   gradients, accumulate);
    work.ops.SwiGluBackward(count, inner_, gate_up, dswiglu, gate_up);
    BackwardLinear(work, gate_up_[e], parameters, count,
                   static_cast<const T*>(s.gathered + at * channels_),
                   static_cast<const T*>(gate_up), work.expert_gradient.row(at),
                   gradients, accumulate);
  }

  // The gradient of a row's probabilities by the loss that balances experts.
  void SetBalance(Workspace<T>& work, int64_t rows,
                  const RouterTotals<T>& totals) const {
    const double all = static_cast<double>(work.config.layer_count * rows);
    const T factor =
        totals.scale *
        static_cast<T>(work.config.router_loss_weight *
                       static_cast<double>(expert_count_) / (all * all));
    work.ops.SetZero(expert_count_, work.balance);
    work.ops.Axpy(expert_count_, factor, totals.counts, work.balance);
  }

  const int64_t channels_, inner_, expert_count_, experts_per_token_;
  LinearMap router_;
  std::vector<LinearMap> gate_up_, down_;  // One an expert.
};

}  // namespace

template <typename T>
std::unique_ptr<Mlp<T>> MakeMixture(const ModelConfig& config,
                                    const ParameterLayout& layout,
                                    int64_t layer) {
  return std::make_unique<Mixture<T>>(config, layout, layer);
}

template std::unique_ptr<Mlp<float>> MakeMixture(const ModelConfig&,
                                                 const ParameterLayout&,
                                                 int64_t);
template std::unique_ptr<Mlp<double>> MakeMixture(const ModelConfig&,
                                                  const ParameterLayout&,
                                                  int64_t);

}  // namespace atl::engine
