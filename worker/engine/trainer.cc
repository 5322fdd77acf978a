#include "worker/engine/trainer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/obs/log.h"
#include "base/status/status_macros.h"
#include "worker/engine/model/decoder.h"
#include "worker/engine/ops/cpu/cpu_ops.h"
#include "worker/engine/optimizer/inner_optimizer.h"
#include "worker/engine/tensor/arena.h"
#include "worker/engine/trainer_checks.h"

namespace atl::engine {
namespace {

// NextTokenLogits pads prefixes to a multiple of this many tokens; causal
// attention hides the padding from earlier tokens.
constexpr int64_t kPrefixMultiple = 32;

class SingleRankTrainer final : public Trainer {
 public:
  SingleRankTrainer(const TrainerOptions& options, std::unique_ptr<Ops> ops)
      : options_(options), ops_(std::move(ops)) {}

  absl::Status Init() {
    ASSIGN_OR_RETURN(
        decoder_, Decoder<float>::Create(
                      options_.model,
                      options_.batch_size * options_.sequence_length, *ops_));
    ASSIGN_OR_RETURN(
        optimizer_,
        InnerOptimizer::Create(options_.optimizer, decoder_->layout(), *ops_));
    const int64_t count = layout().element_count;
    const auto take = [&](Arena& arena) {
      for (absl::Span<float>* of : {&device_parameters_, &device_gradients_}) {
        *of = {arena.Take<float>(count), static_cast<size_t>(count)};
      }
    };
    ASSIGN_OR_RETURN(arena_, Arena::CreateFor(take, ops_->memory()));
    held_ = {.begin = 0, .end = count};
    prefix_.resize(options_.sequence_length);
    return InitHost();
  }

  const ParameterLayout& layout() const override { return decoder_->layout(); }
  absl::Span<const ParameterSpan> held() const override {
    return absl::MakeConstSpan(&held_, 1);
  }
  absl::Span<float> parameters() override { return parameters_; }
  absl::Span<const float> parameters() const override { return parameters_; }
  using Trainer::Gather;
  using Trainer::Scatter;
  absl::Status Scatter(const Movement& what) override {
    ForEachCopied(what, [this](absl::Span<float> host,
                               absl::Span<float> device) {
      ops_->FromHost(host.size() * sizeof(float), host.data(), device.data());
    });
    return ops_->status();
  }
  absl::Status Gather(const Movement& what) override {
    ForEachCopied(
        what, [this](absl::Span<float> host, absl::Span<float> device) {
          ops_->ToHost(host.size() * sizeof(float), device.data(), host.data());
        });
    return ops_->status();
  }
  bool set_before_write(std::function<void()> before_write) override {
    // With a device only Gather changes the host's copies.
    if (ops_->memory().is_host()) before_write_ = std::move(before_write);
    return true;
  }
  double gradient_norm() const override { return gradient_norm_; }
  double router_loss() const override { return decoder_->router_loss(); }

  OptimizerState optimizer_state() override {
    return {.first_moment = first_moment_,
            .second_moment = second_moment_,
            .step_count = optimizer_->step_count()};
  }
  void set_optimizer_step_count(int64_t step_count) override {
    optimizer_->set_step_count(step_count);
  }
  void ResetOptimizer() override {
    optimizer_->Reset();
    for (absl::Span<float> moment : {first_moment_, second_moment_}) {
      std::fill(moment.begin(), moment.end(), 0.0f);
    }
  }

  absl::StatusOr<float> Step(absl::Span<const int32_t> inputs,
                             absl::Span<const int32_t> targets, int64_t step,
                             double learning_rate_factor) override {
    RETURN_IF_ERROR(ValidateWindows(options_, inputs, targets));
    const TokenBatch batch = MakeBatch(inputs, targets);
    RETURN_IF_ERROR(ValidateStepSize(options_, batch.batch));
    const double rate =
        LearningRateAt(options_.schedule, step) * learning_rate_factor;
    // Only the host knows a mixture's row counts, and so its shapes.
    if (ops_->replays() && !options_.model.is_mixture()) {
      if (before_write_) before_write_();
      return StepQueued(batch, rate);
    }
    const float loss = decoder_->ForwardBackward(
        device_parameters_.data(), batch, device_gradients_.data());
    RETURN_IF_ERROR(ops_->status());
    RETURN_IF_ERROR(CheckFinite("loss", loss));
    if (before_write_) before_write_();
    gradient_norm_ = optimizer_->Step(rate, device_gradients_.data(),
                                      device_parameters_.data());
    RETURN_IF_ERROR(ops_->status());
    RETURN_IF_ERROR(CheckFinite("gradient norm", gradient_norm_));
    return loss;
  }

  absl::StatusOr<double> EvaluateLoss(
      absl::Span<const int32_t> inputs,
      absl::Span<const int32_t> targets) override {
    RETURN_IF_ERROR(ValidateWindows(options_, inputs, targets));
    const size_t batch_tokens =
        static_cast<size_t>(options_.batch_size * options_.sequence_length);
    double total = 0;
    for (size_t begin = 0; begin < inputs.size(); begin += batch_tokens) {
      const TokenBatch batch = MakeBatch(inputs.subspan(begin, batch_tokens),
                                         targets.subspan(begin, batch_tokens));
      total += static_cast<double>(
                   decoder_->Loss(device_parameters_.data(), batch)) *
               static_cast<double>(batch.rows());
    }
    RETURN_IF_ERROR(ops_->status());
    return total / static_cast<double>(inputs.size());
  }

  absl::StatusOr<absl::Span<const float>> NextTokenLogits(
      absl::Span<const int32_t> tokens) override {
    const int64_t length = static_cast<int64_t>(tokens.size());
    RETURN_IF_ERROR(ValidatePrefix(options_, tokens));
    const int64_t padded = std::min(
        options_.sequence_length,
        (length + kPrefixMultiple - 1) / kPrefixMultiple * kPrefixMultiple);
    std::fill(std::copy(tokens.begin(), tokens.end(), prefix_.begin()),
              prefix_.begin() + padded, 0);
    const float* logits = decoder_->Logits(device_parameters_.data(),
                                           prefix_.data(), padded, length - 1);
    RETURN_IF_ERROR(ops_->status());
    return absl::Span<const float>(
        logits, static_cast<size_t>(options_.model.vocab_size));
  }

 private:
  // A buffer that exists on the device and on the host.
  struct Copy {
    absl::Span<float> device, host;
  };

  // The spans that callers see: the same buffers on a CPU, copies otherwise.
  absl::Status InitHost() {
    const absl::Span<float> first = optimizer_->first_moment();
    const absl::Span<float> second = optimizer_->second_moment();
    if (ops_->memory().is_host()) {
      parameters_ = device_parameters_;
      first_moment_ = first;
      second_moment_ = second;
      return absl::OkStatus();
    }
    const auto take = [&](Arena& arena) {
      const auto copy = [&](absl::Span<float> device) -> absl::Span<float> {
        return {arena.Take<float>(static_cast<int64_t>(device.size())),
                device.size()};
      };
      parameters_ = copy(device_parameters_);
      first_moment_ = copy(first);
      second_moment_ = copy(second);
    };
    ASSIGN_OR_RETURN(host_arena_, Arena::CreateFor(take));
    copies_ = {{device_parameters_, parameters_},
               {first, first_moment_},
               {second, second_moment_}};
    return absl::OkStatus();
  }

  // Calls `copy(host, device)` for each part of `what`. Nothing to do without
  // a device.
  template <typename F>
  void ForEachCopied(const Movement& what, const F& copy) {
    for (size_t i = 0; i < copies_.size(); ++i) {
      const auto& [device, host] = copies_[i];
      const bool is_parameters = i == 0;
      if (!is_parameters) {
        if (what.moments) copy(host, device);
      } else if (!what.parameters.has_value()) {
        copy(host, device);
      } else {
        for (const ParameterSpan& span : *what.parameters) {
          copy(host.subspan(span.begin, span.end - span.begin),
               device.subspan(span.begin, span.end - span.begin));
        }
      }
    }
  }

  // A step that queues, or replays, both passes and the update at once. The
  // host waits only at the end.
  absl::StatusOr<float> StepQueued(const TokenBatch& host_batch, double rate) {
    const TokenBatch batch = decoder_->Fetch(host_batch);
    optimizer_->BeginQueued(rate);
    ops_->Replay(batch.batch, [&] {
      decoder_->QueueForwardBackward(device_parameters_.data(), batch,
                                     device_gradients_.data());
      optimizer_->QueueStep(batch.rows(), decoder_->losses(),
                            device_gradients_.data(),
                            device_parameters_.data());
    });
    const InnerOptimizer::Sums sums = optimizer_->EndQueued();
    const std::string note = ops_->TakeNote();
    if (!note.empty()) LOG(WARNING) << note;
    RETURN_IF_ERROR(ops_->status());
    const float loss =
        static_cast<float>(sums.loss / static_cast<double>(batch.rows()));
    RETURN_IF_ERROR(CheckFinite("loss", loss));
    gradient_norm_ = sums.gradient_norm;
    RETURN_IF_ERROR(CheckFinite("gradient norm", gradient_norm_));
    return loss;
  }

  TokenBatch MakeBatch(absl::Span<const int32_t> inputs,
                       absl::Span<const int32_t> targets) const {
    return {
        .batch = static_cast<int64_t>(inputs.size()) / options_.sequence_length,
        .sequence_length = options_.sequence_length,
        .inputs = inputs.data(),
        .targets = targets.data()};
  }

  const TrainerOptions options_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Decoder<float>> decoder_;
  std::unique_ptr<InnerOptimizer> optimizer_;
  Arena arena_;
  absl::Span<float> device_parameters_;
  absl::Span<float> device_gradients_;
  Arena host_arena_;  // Used with a device only.
  std::vector<Copy> copies_;
  ParameterSpan held_;
  absl::Span<float> parameters_;
  absl::Span<float> first_moment_;
  absl::Span<float> second_moment_;
  std::vector<int32_t> prefix_;  // [T], for NextTokenLogits
  double gradient_norm_ = 0;
  std::function<void()> before_write_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(
    const TrainerOptions& options) {
  RETURN_IF_ERROR(ValidateTrainerOptions(options));
  return CreateOn(options, MakeCpuOps(options.thread_count, options.compute));
}

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::CreateOn(
    const TrainerOptions& options, std::unique_ptr<Ops> ops) {
  RETURN_IF_ERROR(ValidateTrainerOptions(options));
  auto trainer = std::make_unique<SingleRankTrainer>(options, std::move(ops));
  RETURN_IF_ERROR(trainer->Init());
  return trainer;
}

}  // namespace atl::engine
