#include "worker/api/train_alone.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/layout/digest.h"
#include "base/layout/run_length.h"
#include "base/status/status_macros.h"
#include "worker/data/local_data.h"
#include "worker/engine/device/device_spec.h"
#include "worker/engine/device/devices.h"
#include "worker/island/engine_trainer.h"
#include "worker/island/group/device.h"
#include "worker/island/island_state.h"

namespace atl::worker {
namespace {

absl::StatusOr<double> Validate(IslandState& state) {
  ASSIGN_OR_RETURN(const bool can_evaluate, state.trainer().CanEvaluate());
  if (!can_evaluate) return 0.0;
  ASSIGN_OR_RETURN(const EvaluationResult result, state.trainer().Evaluate(0));
  return result.loss;
}

bool EvaluationDue(const v1::RunSpec& spec, int64_t step, int64_t step_count) {
  const int64_t every = spec.evaluation().every_round_count();
  if (every <= 0) return false;
  return step == step_count ||
         step % (every * spec.schedule().inner_step_count()) == 0;
}

}  // namespace

absl::StatusOr<TrainAloneResult> TrainAlone(const TrainAloneOptions& options) {
  v1::RunSpec spec = options.spec;
  if (spec.init().import()) {
    return absl::InvalidArgumentError(
        "training alone starts from a generated version 0: the spec says that "
        "it is imported");
  }
  if (options.one_data_shard) spec.mutable_data()->set_data_shard_count(1);
  ASSIGN_OR_RETURN(const engine::DeviceSpec device,
                   engine::ParseDeviceSpec(options.device));
  ASSIGN_OR_RETURN(const std::unique_ptr<engine::Devices> devices,
                   engine::OpenDevices(device));
  EngineTrainerOptions trainer_options;
  trainer_options.thread_count = options.thread_count;
  trainer_options.data = options.data;
  // The spec is the caller's own run file, not a peer's.
  if (options.data.path.empty()) {
    trainer_options.data.path = FindNamedPath(spec.data());
  }
  trainer_options.data.stop = options.stop;
  trainer_options.check_fingerprint = false;
  trainer_options.wait = BatchReader::Wait::kYes;
  trainer_options.make_trainer =
      [&devices](const engine::TrainerOptions& trainer) {
        return MakeTrainerOn(*devices, trainer);
      };
  ASSIGN_OR_RETURN(std::unique_ptr<EngineTrainer> trainer,
                   EngineTrainer::Create(spec, trainer_options));
  ASSIGN_OR_RETURN(const std::unique_ptr<IslandState> state,
                   IslandState::Create(spec, std::move(trainer)));
  state->InitAnchors(spec);
  RETURN_IF_ERROR(state->BeginRound());

  TrainAloneProgress progress;
  progress.step_count = options.step_count;
  if (progress.step_count == 0) {
    progress.step_count = PlannedStepCount(spec);
  }
  double seconds = 0;
  int64_t token_count = 0;
  TrainAloneResult result;
  while (progress.step < progress.step_count) {
    if (options.stop.stop_requested()) {
      return absl::CancelledError("training was stopped");
    }
    ASSIGN_OR_RETURN(
        const StepResult step,
        state->Train({.step = progress.step,
                      .data_position =
                          progress.step * spec.inner().batch_size()}));
    seconds += absl::ToDoubleSeconds(step.end - step.begin);
    token_count += step.token_count;
    ++progress.step;
    if (options.outer_round_trip &&
        progress.step % spec.schedule().inner_step_count() == 0) {
      RETURN_IF_ERROR(state->StepAnchorsToLocal());
      RETURN_IF_ERROR(state->BeginRound());
    }
    progress.loss = *step.loss;
    progress.tokens_per_second = static_cast<double>(token_count) / seconds;
    progress.validation_loss.reset();
    if (EvaluationDue(spec, progress.step, progress.step_count)) {
      ASSIGN_OR_RETURN(progress.validation_loss, Validate(*state));
      result.validation_loss = *progress.validation_loss;
    }
    if (options.on_progress) options.on_progress(progress);
  }
  ASSIGN_OR_RETURN(result.validation_loss, Validate(*state));
  RETURN_IF_ERROR(state->AcquireAll(LocalAccess::kRead));
  const absl::Span<const float> parameters = state->local();
  result.parameters.assign(parameters.begin(), parameters.end());
  result.parameters_sha256 =
      ParametersSha256(state->layout(), result.parameters);
  result.step_count = progress.step;
  result.tokens_per_second = progress.tokens_per_second;
  return result;
}

}  // namespace atl::worker
