#include "server/core/outer_optimizer/outer_optimizer.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "server/kernels/loop_table.h"
#include "server/kernels/outer_steps.h"

namespace atl::server {
namespace {

using kernels::BestLoops;
using kernels::InOut;
using kernels::LoopTable;
using MadeOptimizer = absl::StatusOr<std::unique_ptr<OuterOptimizer>>;

InOut<float> Theta(const OuterTile& t) {
  return {t.old_theta != nullptr ? t.old_theta : t.theta, t.theta};
}

InOut<float> State(const OuterTile& t, int i) {
  return {t.old_state[i] != nullptr ? t.old_state[i] : t.state[i], t.state[i]};
}

absl::Status CheckPositive(absl::string_view field, double value) {
  if (std::isfinite(value) && value > 0 &&
      std::isfinite(static_cast<float>(value))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", but must be > 0 and finite"));
}

// In [0, 1).
absl::Status CheckFraction(absl::string_view field, double value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", but must be in [0, 1)"));
}

// SGD: theta = theta - lr g. FedAvg is SGD with lr = 1: theta becomes the mean
// of the islands' parameters, because a round's weights sum to one.
class Sgd final : public OuterOptimizer {
 public:
  Sgd(absl::string_view name, float lr) : name_(name), lr_(lr) {}

  absl::string_view name() const override { return name_; }
  int state_count() const override { return 0; }
  float initial_state(int i) const override { return 0.0f; }
  void Step(const OuterTile& t) const override {
    BestLoops().sgd(t.count, lr_, t.gradient, Theta(t));
  }

 private:
  const absl::string_view name_;
  const float lr_;
};

MadeOptimizer MakeSgd(const v1::OuterSpec& spec) {
  RETURN_IF_ERROR(CheckPositive("outer.learning_rate", spec.learning_rate()));
  return std::make_unique<Sgd>("sgd", static_cast<float>(spec.learning_rate()));
}

// m = momentum m + g, and then
//   Momentum: theta = theta - lr m: PyTorch's SGD with momentum, without
//             dampening
//   FedAvgM (arXiv 1909.06335): the same
//   Nesterov: theta = theta - lr (g + momentum m): PyTorch's SGD with nesterov
//             = True
class WithMomentum final : public OuterOptimizer {
 public:
  using Rule = decltype(&LoopTable::momentum);

  WithMomentum(absl::string_view name, Rule rule, const v1::OuterSpec& spec)
      : name_(name),
        rule_(rule),
        lr_(static_cast<float>(spec.learning_rate())),
        momentum_(static_cast<float>(spec.momentum())) {}

  absl::string_view name() const override { return name_; }
  int state_count() const override { return 1; }
  // -0 and not 0: momentum * -0 + g is g for every g, -0 included. So the first
  // step takes g itself, as PyTorch does.
  float initial_state(int i) const override { return -0.0f; }
  void Step(const OuterTile& t) const override {
    (BestLoops().*rule_)(t.count, lr_, momentum_, t.gradient, Theta(t),
                         State(t, 0));
  }

 private:
  const absl::string_view name_;
  const Rule rule_;
  const float lr_;
  const float momentum_;
};

MadeOptimizer MakeWithMomentum(absl::string_view name, WithMomentum::Rule rule,
                               const v1::OuterSpec& spec) {
  RETURN_IF_ERROR(CheckPositive("outer.learning_rate", spec.learning_rate()));
  RETURN_IF_ERROR(CheckFraction("outer.momentum", spec.momentum()));
  return std::make_unique<WithMomentum>(name, rule, spec);
}

// arXiv 2003.00295, algorithm 2, with Delta = -g:
//   m = beta1 m + (1 - beta1) Delta
//   v = beta2 v + (1 - beta2) Delta^2                    FedAdam
//       v - (1 - beta2) Delta^2 sign(v - Delta^2)        FedYogi
//       v + Delta^2                                      FedAdagrad
//   theta = theta + lr m / (sqrt(v) + tau)
// m starts at 0, v at tau^2; no bias correction.
class Adaptive final : public OuterOptimizer {
 public:
  using Rule = decltype(&LoopTable::fed_adam);

  Adaptive(absl::string_view name, Rule rule, const v1::OuterSpec& spec)
      : name_(name),
        rule_(rule),
        // tau^2, and 1 - beta below: computed in f64 and rounded once.
        v0_(static_cast<float>(spec.tau() * spec.tau())) {
    constants_.lr = static_cast<float>(spec.learning_rate());
    constants_.beta1 = static_cast<float>(spec.beta1());
    constants_.one_minus_beta1 = static_cast<float>(1.0 - spec.beta1());
    constants_.beta2 = static_cast<float>(spec.beta2());
    constants_.one_minus_beta2 = static_cast<float>(1.0 - spec.beta2());
    constants_.tau = static_cast<float>(spec.tau());
  }

  absl::string_view name() const override { return name_; }
  int state_count() const override { return 2; }
  float initial_state(int i) const override { return i == 0 ? 0.0f : v0_; }
  void Step(const OuterTile& t) const override {
    (BestLoops().*rule_)(t.count, constants_, t.gradient, Theta(t), State(t, 0),
                         State(t, 1));
  }

 private:
  const absl::string_view name_;
  const Rule rule_;
  const float v0_;
  kernels::AdaptiveConstants<float> constants_;  // Each rounded once.
};

MadeOptimizer MakeAdaptive(absl::string_view name, Adaptive::Rule rule,
                           bool reads_beta2, const v1::OuterSpec& spec) {
  RETURN_IF_ERROR(CheckPositive("outer.learning_rate", spec.learning_rate()));
  RETURN_IF_ERROR(CheckFraction("outer.beta1", spec.beta1()));
  if (reads_beta2) {
    RETURN_IF_ERROR(CheckFraction("outer.beta2", spec.beta2()));
  }
  RETURN_IF_ERROR(CheckPositive("outer.tau", spec.tau()));
  return std::make_unique<Adaptive>(name, rule, spec);
}

// Delayed Nesterov (arXiv 2401.09135, algorithm 3). Every merge steps the
// parameters by its own share, but the momentum is updated only with the mean
// of each N of them. Otherwise N contributions that arrive one by one would
// push the momentum N times as far as N that arrive together.
//
//   sum = sum + g
//   each N-th step: m = momentum m + sum / N; sum = 0;
//                   theta = theta - lr ((1 - c N + c) momentum m + g / N)
//   each other:     theta = theta - lr (c momentum m + g / N)
class DelayedNesterov final : public OuterOptimizer {
 public:
  explicit DelayedNesterov(const v1::OuterSpec& spec)
      : buffer_count_(spec.buffer_count()) {
    const double n = spec.buffer_count();
    const double c = spec.momentum_share();
    constants_.lr = static_cast<float>(spec.learning_rate());
    constants_.momentum = static_cast<float>(spec.momentum());
    constants_.buffer_count = static_cast<float>(n);
    constants_.carried = static_cast<float>(c * spec.momentum());
    constants_.flushed =
        static_cast<float>((1.0 - c * n + c) * spec.momentum());
  }

  absl::string_view name() const override { return "delayed nesterov"; }
  int state_count() const override { return 2; }
  // m and the sum start at -0 as in WithMomentum.
  float initial_state(int i) const override { return -0.0f; }
  void Step(const OuterTile& t) const override {
    const bool flush = (t.version + 1) % buffer_count_ == 0;
    BestLoops().delayed_nesterov(t.count, constants_, flush, t.gradient,
                                 Theta(t), State(t, 0), State(t, 1));
  }

 private:
  const int64_t buffer_count_;
  kernels::DelayedConstants<float> constants_;  // Each rounded once.
};

MadeOptimizer MakeDelayedNesterov(const v1::OuterSpec& spec) {
  RETURN_IF_ERROR(CheckPositive("outer.learning_rate", spec.learning_rate()));
  RETURN_IF_ERROR(CheckFraction("outer.momentum", spec.momentum()));
  if (spec.buffer_count() < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "outer.buffer_count is ", spec.buffer_count(), ", but must be >= 1"));
  }
  if (!(spec.momentum_share() >= 0 &&
        spec.momentum_share() * spec.buffer_count() <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("outer.momentum_share is ", spec.momentum_share(),
                     ", but must be in [0, 1 / outer.buffer_count]"));
  }
  return std::make_unique<DelayedNesterov>(spec);
}

// Elements [begin, begin + count) of `tile`.
OuterTile Part(const OuterTile& tile, int64_t begin, int64_t count) {
  const auto move = [begin](auto*& array) {
    if (array != nullptr) array += begin;
  };
  OuterTile part = tile;
  part.count = count;
  move(part.gradient);
  move(part.theta);
  move(part.old_theta);
  for (int i = 0; i < OuterOptimizer::kMaxStateCount; ++i) {
    move(part.state[i]);
    move(part.old_state[i]);
  }
  return part;
}

void StepBuffer(const OuterOptimizer& optimizer, const OuterTile& t) {
  BestLoops().sgd(t.count, 1.0f, t.gradient, Theta(t));
  for (int i = 0; i < optimizer.state_count(); ++i) {
    const InOut<float> state = State(t, i);
    if (state.in != state.out) std::copy_n(state.in, t.count, state.out);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<OuterOptimizer>> MakeOuterOptimizer(
    const v1::OuterSpec& spec) {
  switch (spec.optimizer()) {
    case v1::OUTER_OPTIMIZER_KIND_SGD:
      return MakeSgd(spec);
    case v1::OUTER_OPTIMIZER_KIND_MOMENTUM:
      return MakeWithMomentum("momentum", &LoopTable::momentum, spec);
    case v1::OUTER_OPTIMIZER_KIND_NESTEROV:
      return MakeWithMomentum("nesterov", &LoopTable::nesterov, spec);
    case v1::OUTER_OPTIMIZER_KIND_FEDAVG:
      return std::make_unique<Sgd>("fedavg", 1.0f);
    case v1::OUTER_OPTIMIZER_KIND_FEDAVGM:
      return MakeWithMomentum("fedavgm", &LoopTable::momentum, spec);
    case v1::OUTER_OPTIMIZER_KIND_FEDADAM:
      return MakeAdaptive("fedadam", &LoopTable::fed_adam,
                          /*reads_beta2=*/true, spec);
    case v1::OUTER_OPTIMIZER_KIND_FEDYOGI:
      return MakeAdaptive("fedyogi", &LoopTable::fed_yogi,
                          /*reads_beta2=*/true, spec);
    case v1::OUTER_OPTIMIZER_KIND_FEDADAGRAD:
      return MakeAdaptive("fedadagrad", &LoopTable::fed_adagrad,
                          /*reads_beta2=*/false, spec);
    case v1::OUTER_OPTIMIZER_KIND_DELAYED_NESTEROV:
      return MakeDelayedNesterov(spec);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("outer.optimizer ", static_cast<int>(spec.optimizer()),
                       " is unknown to this program"));
  }
}

void StepBlocks(const OuterOptimizer& optimizer, const RunLayout& layout,
                int32_t fragment, IndexRange blocks, const OuterTile& tile) {
  if (!layout.has_buffers(fragment)) return optimizer.Step(tile);
  int64_t done = 0;
  for (int64_t begin = blocks.begin; begin < blocks.end;) {
    const TensorPlace& tensor = layout.BlockTensor(fragment, begin);
    const int64_t end =
        std::min(blocks.end, tensor.first_block + tensor.block_count);
    const int64_t count = layout.BlockElements(fragment, {begin, end}).size();
    const OuterTile part = Part(tile, done, count);
    if (tensor.is_buffer) {
      StepBuffer(optimizer, part);
    } else {
      optimizer.Step(part);
    }
    done += count;
    begin = end;
  }
}

}  // namespace atl::server
