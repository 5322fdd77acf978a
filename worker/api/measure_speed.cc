#include "worker/api/measure_speed.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/layout/external_model.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/trainer.h"
#include "worker/planner/model_spec.h"

namespace atl::worker {
namespace {

constexpr int32_t kHiddenMax = 512;
constexpr int32_t kLayersMax = 2;
constexpr int32_t kVocabularyMax = 1024;
constexpr int32_t kTokensMax = 128;
constexpr int32_t kExpertsMax = 4;
// A small model's steps differ little. A large one's need more than the time.
constexpr int64_t kStepsMax = 100;

// Fewer heads of the same size, each with keys of its own.
void Narrow(v1::ModelSpec& model) {
  if (model.hidden_size() <= kHiddenMax || model.head_count() < 1) return;
  const int32_t head_size = model.hidden_size() / model.head_count();
  const int32_t heads =
      std::clamp(kHiddenMax / std::max(1, head_size), 1, model.head_count());
  const int32_t hidden = heads * head_size;
  model.set_intermediate_size(static_cast<int32_t>(std::max<int64_t>(
      1, int64_t{model.intermediate_size()} * hidden / model.hidden_size())));
  model.set_hidden_size(hidden);
  model.set_head_count(heads);
  model.set_kv_head_count(heads);
}

// Small numbers, so that no loss or gradient is special.
void FillParameters(absl::Span<float> parameters) {
  uint32_t state = 1;
  for (float& parameter : parameters) {
    state = state * 1664525u + 1013904223u;
    parameter = 0.04f * (static_cast<float>(state >> 8) / (1 << 24) - 0.5f);
  }
}

}  // namespace

absl::StatusOr<double> CountFlopsPerToken(const v1::ModelSpec& model) {
  ASSIGN_OR_RETURN(const engine::ModelConfig config, MakeModelConfig(model));
  const engine::ParameterLayout layout = engine::MakeParameterLayout(config);
  int64_t parameters = config.hidden_size * config.vocab_size;  // The head.
  for (const engine::ParameterSpec& parameter : layout.parameters) {
    if (parameter.parameter_class == engine::ParameterClass::kMatrix &&
        parameter.expert < config.experts_per_token) {
      parameters += parameter.element_count;
    }
  }
  const int64_t attention =
      config.layer_count * config.sequence_length_max * config.hidden_size;
  return static_cast<double>(6 * parameters + 12 * attention);
}

absl::StatusOr<v1::RunSpec> MakeSampleRun(const v1::RunSpec& run) {
  if (IsExternal(run.model())) {
    return absl::InvalidArgumentError(
        "only the trainer knows an external model");
  }
  v1::RunSpec sample;
  v1::ModelSpec& model = *sample.mutable_model();
  model = run.model();
  Narrow(model);
  model.set_layer_count(std::min(model.layer_count(), kLayersMax));
  model.set_vocab_size(std::min(model.vocab_size(), kVocabularyMax));
  model.set_sequence_length(std::min(model.sequence_length(), kTokensMax));
  model.set_expert_count(std::min(
      model.expert_count(), std::max(kExpertsMax, model.experts_per_token())));
  *sample.mutable_inner() = run.inner();
  sample.mutable_inner()->set_batch_size(
      std::clamp(kTokensMax / std::max(1, model.sequence_length()), 1,
                 std::max(1, run.inner().batch_size())));
  *sample.mutable_schedule() = run.schedule();
  ASSIGN_OR_RETURN(*sample.mutable_layout(), BuildLayout(model));
  return sample;
}

absl::StatusOr<double> MeasureTokensPerSecond(
    const v1::RunSpec& run, int thread_count, absl::Duration time_max,
    const std::function<bool()>& stopped) {
  ASSIGN_OR_RETURN(const v1::RunSpec sample, MakeSampleRun(run));
  ASSIGN_OR_RETURN(const double run_flops, CountFlopsPerToken(run.model()));
  ASSIGN_OR_RETURN(const double sample_flops,
                   CountFlopsPerToken(sample.model()));
  ASSIGN_OR_RETURN(const engine::TrainerOptions options,
                   MakeTrainerOptions(sample, thread_count));
  ASSIGN_OR_RETURN(const std::unique_ptr<engine::Trainer> trainer,
                   engine::Trainer::Create(options));
  FillParameters(trainer->parameters());
  RETURN_IF_ERROR(trainer->Scatter());
  const auto tokens_a_step =
      static_cast<size_t>(options.batch_size * options.sequence_length);
  std::vector<int32_t> tokens(tokens_a_step);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(i) % sample.model().vocab_size();
  }
  const absl::Time begin = SystemClock().Now();
  absl::Duration shortest = absl::InfiniteDuration();
  // The shortest step is the least disturbed one.
  for (int64_t step = 0; step < kStepsMax; ++step) {
    if (stopped()) break;
    if (step > 0 && SystemClock().Now() - begin >= time_max) break;
    const absl::Time step_begin = SystemClock().Now();
    RETURN_IF_ERROR(trainer->Step(tokens, tokens, step).status());
    shortest = std::min(shortest, SystemClock().Now() - step_begin);
  }
  if (shortest == absl::InfiniteDuration()) {
    return absl::CancelledError("stopped");
  }
  return static_cast<double>(tokens_a_step) / absl::ToDoubleSeconds(shortest) *
         sample_flops / run_flops;
}

}  // namespace atl::worker
