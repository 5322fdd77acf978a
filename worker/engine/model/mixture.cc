#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/collective/call.h"
#include "worker/engine/model/exchange.h"
#include "worker/engine/model/expert_exchange.h"
#include "worker/engine/model/mlp.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/model/parts.h"
#include "worker/engine/model/unit_slice.h"
#include "worker/engine/model/workspace.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {
namespace {

// With cp: how often each expert is chosen before each of this rank's N runs
// (model/unit_slice.h, SequenceRuns) in its sequence, [N, E]. An expert with a
// capacity takes the earliest rows of a sequence first, on whichever rank they
// are. `experts` are the choices of this rank's rows; `shape` has one group per
// run. All ranks of the cp group must call it.
//
// Valid until the workspace is used again; null after an error. Latches
// INVALID_ARGUMENT if there are more runs than those of whole sequences of the
// model's length.
template <typename T>
const T* ChosenBefore(Workspace<T>& work, const RouteShape& shape,
                      const int32_t* experts) {
  if (!work.ok()) return nullptr;
  if (shape.group_count() > work.run_count_max) {
    work.Latch(absl::InvalidArgumentError(
        "with cp an expert's capacity needs sequences of the model's length"));
    return nullptr;
  }
  const int64_t n = shape.expert_count, ranks = work.slice.cp_size;
  const int64_t count = shape.group_count() * n;
  T* const mine = work.run_counts;
  T* const all = mine + count;  // [ranks, N, E]
  work.ops.CountChoices(shape, experts, mine);
  work.Latch(work.groups.cp->Run(collective::Call::AllGather(
      collective::kDataTypeOf<T>, mine, all, count)));
  if (!work.ok()) return nullptr;
  std::vector<T> counts(ranks * count), before(count);
  work.ops.ReadValues(ranks * count, all, counts.data());
  work.Latch(work.groups.cp->status());  // The call may end only now.
  if (!work.ok()) return nullptr;
  std::vector<T> chosen(n);
  for (int64_t sequence = 0; sequence < shape.group_count(); sequence += 2) {
    chosen.assign(n, T(0));
    // In the order of positions: the first runs of all ranks, then the second
    // ones from the last rank to the first.
    for (int64_t chunk = 0; chunk < 2 * ranks; ++chunk) {
      const bool second = chunk >= ranks;
      const int64_t rank = second ? 2 * ranks - 1 - chunk : chunk;
      const int64_t run = (sequence + (second ? 1 : 0)) * n;
      for (int64_t e = 0; e < n; ++e) {
        if (rank == work.slice.cp_rank) before[run + e] = chosen[e];
        chosen[e] += counts[rank * count + run + e];
      }
    }
  }
  work.ops.WriteValues(count, before.data(), mine);
  return mine;
}

template <typename T>
class Mixture final : public Mlp<T> {
 public:
  Mixture(const ModelConfig& config, const ParameterLayout& layout,
          const UnitSlice& slice, int64_t layer, Keep keep)
      : config_(config),
        keep_(keep),
        slice_(slice),
        channels_(config.hidden_size),
        inner_(config.intermediate_size / slice.tp_size),
        expert_count_(config.expert_count),
        experts_per_token_(config.experts_per_token),
        own_(ComputeRange(config.expert_count, slice.ep_rank, slice.ep_size)) {
    const std::string prefix =
        absl::StrCat("model.layers.", layer, ".block_sparse_moe.");
    router_ = {.in = channels_,
               .out = expert_count_,
               .weight = OffsetInUnit(layout, prefix + "gate.weight")};
    for (int64_t e = own_.begin; e < own_.end; ++e) {
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
               int64_t sequence_length, const T* x, Arena& saved, T* delta,
               const RouterTotals<T>& totals) const override {
    const State s = Open(work, rows, saved);
    const RouteShape shape = MakeShape(rows);
    // The backward pass needs only the probabilities.
    T* const logits = work.router_gradient.data;
    ForwardLinear(work, router_, parameters, rows, x, logits);
    work.ops.Route(shape, logits, s.probabilities, s.experts, s.weights);
    work.ops.AddRouteTotals(shape, s.probabilities, s.experts, totals.counts,
                            totals.sums);
    PlanSlots(work, shape, sequence_length, s);
    const ExpertExchange<T> exchange = Exchange(s);
    exchange.ShareCounts(work, ExpertRowsMax(config_, slice_, rows));
    // Rows by slot; Dispatch sends them to experts on other ranks.
    const bool sends = work.groups.ep != nullptr;
    T* const by_slot = sends ? work.slot_rows.data : s.taken;
    work.ops.GatherRows(s.begins[expert_count_], channels_, s.sources, x,
                        by_slot);
    exchange.Dispatch(work, by_slot, s.taken);
    T* const out = sends ? work.expert_rows.data : s.out;
    for (int64_t e = 0; e < own_.size(); ++e) {
      const int64_t at = exchange.begin(e), count = exchange.count(e);
      if (count == 0) continue;
      T* const gate_up = s.gate_up + at * 2 * inner_;
      T* const swiglu = s.swiglu + at * inner_;
      ForwardLinear(work, gate_up_[e], parameters, count,
                    static_cast<const T*>(s.taken + at * channels_), gate_up);
      work.ops.SwiGlu(count, inner_, gate_up, swiglu);
      ForwardLinear(work, down_[e], parameters, count,
                    static_cast<const T*>(swiglu), out + at * channels_);
    }
    exchange.Return(work, out, s.out);
    work.ops.CombineRows(shape, channels_, s.slots, s.weights, s.out, delta);
  }

  void Backward(Workspace<T>& work, const T* parameters, int64_t rows,
                const T* x, Arena& saved, const T* dout,
                const RouterTotals<T>& totals, T* dx, T* gradients,
                bool accumulate) const override {
    const State s = Open(work, rows, saved);
    const RouteShape shape = MakeShape(rows);
    const ExpertExchange<T> exchange = Exchange(s);
    T* const dchoices = work.choice_gradient.data;
    work.ops.CombineRowsBackward(shape, channels_, s.slots, s.weights, s.out,
                                 dout, s.out, dchoices);
    // s.out was this rank's part of the experts' output.
    ReduceOverTp(work, rows * experts_per_token_, dchoices,
                 collective::Reduction::kSum);
    const bool sends = work.groups.ep != nullptr;
    T* const dexperts = sends ? work.expert_rows.data : s.out;
    exchange.Dispatch(work, s.out, dexperts);
    for (int64_t e = 0; e < own_.size(); ++e) {
      BackwardExpert(work, parameters, e, exchange, s, dexperts, gradients,
                     accumulate);
    }
    T* const by_slot = sends ? work.slot_rows.data : work.expert_gradient.data;
    exchange.Return(work, work.expert_gradient.data, by_slot);
    work.ops.CombineRows(shape, channels_, s.slots, nullptr, by_slot, dx);
    BackwardRouter(work, parameters, rows, x, s, totals, dx, gradients,
                   accumulate);
  }

 private:
  struct State {
    T* probabilities;   // [R, E]
    T* weights;         // [R, K]
    int32_t* experts;   // [R, K]
    int32_t* slots;     // [R, K]
    int32_t* sources;   // [R K]
    int64_t* begins;    // [E + 1]
    int64_t* received;  // ExpertExchange's
    T* taken;           // [S, C], input of this rank's experts, by expert
    T* gate_up;         // [S, 2 F]; backward overwrites it with the gradient
    T* swiglu;          // [S, F], the workspace's if it is not kept
    T* out;             // [R K, C], by slot; backward overwrites it, too
  };
  State Take(int64_t rows, Arena& saved) const {
    const int64_t choices = rows * experts_per_token_;
    const int64_t taken = ExpertRowsMax(config_, slice_, rows);
    State s;
    s.probabilities = saved.Take<T>(rows * expert_count_);
    s.weights = saved.Take<T>(choices);
    s.experts = saved.Take<int32_t>(choices);
    s.slots = saved.Take<int32_t>(choices);
    s.sources = saved.Take<int32_t>(choices);
    s.begins = saved.Take<int64_t>(expert_count_ + 1);
    s.received =
        saved.Take<int64_t>(ExpertExchange<T>::ReceivedCount(config_, slice_));
    s.taken = saved.Take<T>(taken * channels_);
    s.gate_up = saved.Take<T>(taken * 2 * inner_);
    if (keep_ == Keep::kAll) s.swiglu = saved.Take<T>(taken * inner_);
    s.out = saved.Take<T>(choices * channels_);
    return s;
  }
  // Take, with host memory for the arrays that the host reads.
  State Open(Workspace<T>& work, int64_t rows, Arena& saved) const {
    State s = Take(rows, saved);
    s.begins = work.OnHost(s.begins, expert_count_ + 1);
    s.received = work.OnHost(s.received,
                             ExpertExchange<T>::ReceivedCount(config_, slice_));
    if (keep_ == Keep::kProducts) s.swiglu = work.activated;
    return s;
  }
  // Assigns slots to choices within the experts' capacity.
  void PlanSlots(Workspace<T>& work, RouteShape shape, int64_t sequence_length,
                 const State& s) const {
    shape.group_rows = sequence_length;
    shape.capacity = ExpertCapacity(config_);
    const T* before = nullptr;
    if (work.run_counts != nullptr) {
      shape.group_rows = sequence_length / 2;  // SequenceRuns.
      before = ChosenBefore(work, shape, s.experts);
    }
    work.ops.PlanDispatch(shape, s.experts, before, s.slots, s.sources,
                          s.begins);
  }

  ExpertExchange<T> Exchange(const State& s) const {
    return ExpertExchange<T>(config_, slice_, s.begins, s.received);
  }

  RouteShape MakeShape(int64_t rows) const {
    return {.rows = rows,
            .expert_count = expert_count_,
            .experts_per_token = experts_per_token_};
  }

  void BackwardExpert(Workspace<T>& work, const T* parameters, int64_t e,
                      const ExpertExchange<T>& exchange, const State& s,
                      const T* dout, T* gradients, bool accumulate) const {
    const int64_t at = exchange.begin(e), count = exchange.count(e);
    if (count == 0) {
      if (accumulate) return;
      work.ops.SetZero(gate_up_[e].in * gate_up_[e].out,
                       gradients + gate_up_[e].weight);
      work.ops.SetZero(down_[e].in * down_[e].out, gradients + down_[e].weight);
      return;
    }
    T* const gate_up = s.gate_up + at * 2 * inner_;
    T* const swiglu = s.swiglu + at * inner_;
    T* const dswiglu = work.part_gradient.data;
    if (keep_ == Keep::kProducts) {
      work.ops.SwiGlu(count, inner_, gate_up, swiglu);
    }
    BackwardLinear(work, down_[e], parameters, count,
                   static_cast<const T*>(swiglu), dout + at * channels_,
                   dswiglu, gradients, accumulate);
    work.ops.SwiGluBackward(count, inner_, gate_up, dswiglu, gate_up);
    BackwardLinear(work, gate_up_[e], parameters, count,
                   static_cast<const T*>(s.taken + at * channels_),
                   static_cast<const T*>(gate_up), work.expert_gradient.row(at),
                   gradients, accumulate);
  }

  // Writes the router's gradient and adds to dx. All tp ranks see all rows
  // here, so each adds only the rows of its own part of the stream.
  void BackwardRouter(Workspace<T>& work, const T* parameters, int64_t rows,
                      const T* x, const State& s, const RouterTotals<T>& totals,
                      T* dx, T* gradients, bool accumulate) const {
    SetBalance(work, rows, totals);
    T* const dlogits = work.router_gradient.data;
    work.ops.RouteBackward(MakeShape(rows), s.probabilities, s.experts,
                           s.weights, work.choice_gradient.data, work.balance,
                           dlogits);
    BackwardLinear<T>(work, router_, parameters, rows, x, dlogits,
                      /*dx=*/nullptr, gradients, accumulate);
    const int64_t own = slice_.stream_rows(rows), first = slice_.tp_rank * own;
    T* const drouter = work.row_gradient.data;
    work.ops.LinearBackwardInput(own, expert_count_, channels_,
                                 dlogits + first * expert_count_,
                                 parameters + router_.weight, drouter);
    work.ops.AddRows(own, channels_, dx + first * channels_, drouter, nullptr,
                     dx + first * channels_);
  }

  // Computes the gradient of the load-balancing loss by a row's probabilities.
  void SetBalance(Workspace<T>& work, int64_t rows,
                  const RouterTotals<T>& totals) const {
    const double all = static_cast<double>(
        config_.layer_count * (totals.rows > 0 ? totals.rows : rows));
    const T factor =
        totals.scale *
        static_cast<T>(config_.router_loss_weight *
                       static_cast<double>(expert_count_) / (all * all));
    work.ops.SetZero(expert_count_, work.balance);
    work.ops.Axpy(expert_count_, factor, totals.counts, work.balance);
  }

  const ModelConfig config_;
  const Keep keep_;
  const UnitSlice slice_;
  const int64_t channels_, inner_, expert_count_, experts_per_token_;
  const Range own_;  // This rank's experts.
  LinearMap router_;
  std::vector<LinearMap> gate_up_, down_;  // One per expert in own_.
};

}  // namespace

template <typename T>
std::unique_ptr<Mlp<T>> MakeMixture(const ModelConfig& config,
                                    const ParameterLayout& layout,
                                    const UnitSlice& slice, int64_t layer,
                                    Keep keep) {
  return std::make_unique<Mixture<T>>(config, layout, slice, layer, keep);
}

template std::unique_ptr<Mlp<float>> MakeMixture(const ModelConfig&,
                                                 const ParameterLayout&,
                                                 const UnitSlice&, int64_t,
                                                 Keep);
template std::unique_ptr<Mlp<double>> MakeMixture(const ModelConfig&,
                                                  const ParameterLayout&,
                                                  const UnitSlice&, int64_t,
                                                  Keep);

}  // namespace atl::engine
