#include "worker/engine/trainer_checks.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status/not_finite.h"
#include "base/status/status_macros.h"

namespace atl::engine {
namespace {

constexpr int64_t kBatchSizeMax = int64_t{1} << 20;
constexpr int kThreadCountMax = 256;

absl::Status ValidateSchedule(const LearningRateSchedule& schedule) {
  if (!(schedule.peak > 0 && std::isfinite(schedule.peak))) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule: peak is ", schedule.peak, ", not > 0"));
  }
  if (schedule.warmup_step_count < 0 || schedule.total_step_count < 0) {
    return absl::InvalidArgumentError("schedule: a step count is negative");
  }
  if (!(schedule.final_fraction >= 0 && schedule.final_fraction <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule: final_fraction is ", schedule.final_fraction,
                     ", not in [0, 1]"));
  }
  return absl::OkStatus();
}

absl::Status ValidateTokens(const TrainerOptions& options,
                            absl::Span<const int32_t> tokens) {
  for (int32_t token : tokens) {
    if (token < 0 || token >= options.model.vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token ", token, " is not in [0, ", options.model.vocab_size, ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateTrainerOptions(const TrainerOptions& options) {
  RETURN_IF_ERROR(ValidateModelConfig(options.model));
  RETURN_IF_ERROR(ValidateOptimizerOptions(options.optimizer));
  RETURN_IF_ERROR(ValidateSchedule(options.schedule));
  if (options.batch_size < 1 || options.batch_size > kBatchSizeMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer: batch_size is ", options.batch_size,
                     ", not in [1, ", kBatchSizeMax, "]"));
  }
  if (options.sequence_length < 1 ||
      options.sequence_length > options.model.sequence_length_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer: sequence_length is ", options.sequence_length,
                     ", not in [1, ", options.model.sequence_length_max, "]"));
  }
  if (options.thread_count < 1 || options.thread_count > kThreadCountMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer: thread_count is ", options.thread_count,
                     ", not in [1, ", kThreadCountMax, "]"));
  }
  return absl::OkStatus();
}

absl::Status ValidateWindows(const TrainerOptions& options,
                             absl::Span<const int32_t> inputs,
                             absl::Span<const int32_t> targets) {
  if (inputs.size() != targets.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        inputs.size(), " inputs but ", targets.size(), " targets"));
  }
  const size_t window = static_cast<size_t>(options.sequence_length);
  if (inputs.empty() || inputs.size() % window != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        inputs.size(), " tokens are not whole sequences of ", window));
  }
  RETURN_IF_ERROR(ValidateTokens(options, inputs));
  return ValidateTokens(options, targets);
}

absl::Status ValidateStepSize(const TrainerOptions& options,
                              int64_t sequence_count) {
  if (sequence_count <= options.batch_size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(sequence_count, " sequences in a step, more than batch_size ",
                   options.batch_size));
}

absl::Status CheckFinite(absl::string_view what, double value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return NotFinite(NotFiniteOf::kStep,
                   absl::InternalError(absl::StrCat(what, " is ", value)));
}

absl::Status ValidatePrefix(const TrainerOptions& options,
                            absl::Span<const int32_t> tokens) {
  const int64_t length = static_cast<int64_t>(tokens.size());
  if (length < 1 || length > options.sequence_length) {
    return absl::InvalidArgumentError(absl::StrCat(
        length, " tokens, not in [1, ", options.sequence_length, "]"));
  }
  return ValidateTokens(options, tokens);
}

}  // namespace atl::engine
