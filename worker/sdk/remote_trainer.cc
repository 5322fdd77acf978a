#include "worker/sdk/remote_trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/layout/fragment_schedule.h"
#include "base/layout/ids.h"
#include "base/layout/run_length.h"
#include "base/layout/trainer_metrics.h"
#include "base/layout/weight_unit.h"
#include "base/obs/log.h"
#include "base/status/not_finite.h"
#include "base/status/status_macros.h"

namespace atl::worker {
namespace {

// The request begins with the steps that the trainer has kept.
bool BeginsWith(const StepRequest& request,
                const v1::TrainerStanding& standing) {
  return standing.step() == request.step &&
         standing.step_count() <= request.step_count_max &&
         standing.version() == request.version &&
         standing.lr_scale() == request.learning_rate_factor &&
         standing.data_shard() == request.data_shard &&
         standing.data_position() == request.data_position;
}

}  // namespace

RemoteTrainer::RemoteTrainer(TrainerHost& host, RunLayout layout,
                             const v1::RunSpec& spec)
    : host_(host),
      layout_(std::move(layout)),
      unit_of_run_(WeightUnitOf(spec.weight_unit())),
      places_(layout_.fragment_count(), Place::kTrainer),
      is_strict_(spec.schedule().timing() == v1::TIMING_STRICT),
      is_in_rounds_(!IsStreaming(spec.schedule()) &&
                    (is_strict_ || spec.schedule().max_staleness() == 0)) {}

absl::StatusOr<std::unique_ptr<RemoteTrainer>> RemoteTrainer::Create(
    TrainerHost& host, const v1::TrainerHello& hello, const v1::RunSpec& spec,
    const TrainerHost::Join& join, std::stop_token stop, absl::Time give_up) {
  if (spec.inner().reset_each_round()) {
    return absl::InvalidArgumentError(
        "inner.reset_each_round is for Atoll's own engine: a trainer resets "
        "its optimizer itself when the round changes");
  }
  ASSIGN_OR_RETURN(RunLayout layout, RunLayout::Create(spec.layout()));
  auto trainer = std::unique_ptr<RemoteTrainer>(
      new RemoteTrainer(host, std::move(layout), spec));
  RETURN_IF_ERROR(host.Connect(hello, spec.layout(), trainer->layout_, join,
                               std::move(stop), give_up));
  trainer->hello_ = host.TakeStandings();
  trainer->trainer_epoch_ = trainer->hello_.run_epoch();
  return trainer;
}

std::vector<IndexRange> RemoteTrainer::held() const {
  return {{0, layout_.element_count()}};
}

v1::WeightUnit RemoteTrainer::weight_unit() const {
  return host_.weight_unit() == v1::WEIGHT_UNIT_UNSPECIFIED
             ? unit_of_run_
             : host_.weight_unit();
}

void RemoteTrainer::set_before_write(std::function<void()> before_write) {
  before_write_ = std::move(before_write);
}

absl::Status RemoteTrainer::Acquire(absl::Span<const int32_t> fragments,
                                    LocalAccess access) {
  if (access == LocalAccess::kReplace) return absl::OkStatus();
  v1::TrainerMessage request;
  for (const int32_t f : fragments) {
    if (places_[f] == Place::kTrainer) request.mutable_read()->add_fragments(f);
  }
  if (!request.has_read()) return absl::OkStatus();
  RETURN_IF_ERROR(DropKept());
  RETURN_IF_ERROR(host_.Ask(request).status());
  for (const int32_t f : request.read().fragments()) places_[f] = Place::kBoth;
  return absl::OkStatus();
}

absl::Span<float> RemoteTrainer::Local(int32_t fragment,
                                       const HeldPiece& piece) {
  return host_.region(fragment).subspan(piece.fragment_offset,
                                        piece.element_count);
}

void RemoteTrainer::MarkWritten(int32_t fragment) {
  places_[fragment] = Place::kRegion;
}

absl::Status RemoteTrainer::Write() {
  RETURN_IF_ERROR(DropKept());
  v1::TrainerMessage request;
  for (int32_t f = 0; f < static_cast<int32_t>(places_.size()); ++f) {
    if (places_[f] == Place::kRegion) request.mutable_write()->add_fragments(f);
  }
  if (!request.has_write()) return absl::OkStatus();
  RETURN_IF_ERROR(host_.Ask(request).status());
  for (const int32_t f : request.write().fragments()) places_[f] = Place::kBoth;
  // The parameters that kept steps have made are gone.
  auto* const standings = hello_.mutable_standings();
  standings->erase(std::remove_if(standings->begin(), standings->end(),
                                  [](const v1::TrainerStanding& standing) {
                                    return standing.step_count() > 0;
                                  }),
                   standings->end());
  return absl::OkStatus();
}

absl::StatusOr<StepResult> RemoteTrainer::Train(const StepRequest& request) {
  before_write_();
  if (!has_state_) RETURN_IF_ERROR(LoadId(""));
  v1::TrainerMessage message;
  v1::TrainerTrain& train = *message.mutable_train();
  if (kept_.has_value() && BeginsWith(request, kept_->standing)) {
    // The trainer has trained on what would be written now.
    train.set_kept_step_count(kept_->standing.step_count());
    const std::string save_id = std::exchange(kept_, std::nullopt)->save_id;
    RETURN_IF_ERROR(SendLoad(save_id, /*keep=*/true));
    LOG(INFO) << "the trainer continues after " << train.kept_step_count()
              << " of " << request.step_count_max << " steps";
  } else {
    RETURN_IF_ERROR(Write());
  }
  train.set_step(request.step);
  train.set_step_count(request.step_count_max);
  train.set_version(request.version);
  train.set_lr_scale(request.learning_rate_factor);
  train.set_data_shard(request.data_shard);
  train.set_data_position(request.data_position);
  StepResult result;
  result.begin = absl::Now();
  ASSIGN_OR_RETURN(const v1::TrainerMessage answer, host_.Ask(message));
  result.end = absl::Now();
  for (Place& place : places_) place = Place::kTrainer;
  const v1::TrainerTrain& done = answer.train();
  if (!std::isfinite(done.paused_seconds()) || done.paused_seconds() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the trainer's paused_seconds is ", done.paused_seconds(),
                     "; it must be finite and at least 0"));
  }
  result.begin = std::min(result.end,
                          result.begin + absl::Seconds(done.paused_seconds()));
  if (!done.index_digest().empty() && !IsLowerHex(done.index_digest(), 64)) {
    return absl::InvalidArgumentError(
        "the trainer's index_digest must be empty or 64 digits of lower-case "
        "hex");
  }
  if (done.step_count() < 0 || done.step_count() > request.step_count_max ||
      done.token_count() < 0 || done.token_count() > kTokenBudgetMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the trainer says that it took ", done.step_count(), " of ",
        request.step_count_max, " steps, with ", done.token_count(),
        " tokens"));
  }
  if (done.step_count() > 0 && done.has_loss() &&
      !std::isfinite(done.loss())) {
    return NotFinite(
        NotFiniteOf::kOther,
        absl::InternalError(absl::StrCat(
            "the trainer's mean loss of ", done.step_count(),
            " steps from step ", request.step, " is ", done.loss())));
  }
  if (done.metrics_size() > static_cast<int>(kTrainerMetricsMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the trainer reports ", done.metrics_size(),
                     " metrics; at most ", kTrainerMetricsMax, " are kept"));
  }
  for (const auto& [name, value] : done.metrics()) {
    if (!IsTrainerMetricName(name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the trainer's metric \"", absl::CHexEscape(name.substr(0, 80)),
          "\" must have a name of 1 to 64 letters, digits and _ . / -"));
    }
    result.metrics[name] = value;
  }
  if (done.step_count() < train.kept_step_count()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the trainer says that it took ", done.step_count(),
        " steps; it had kept ", train.kept_step_count(), " of them"));
  }
  result.step_count = done.step_count();
  result.kept_step_count = train.kept_step_count();
  if (done.step_count() > 0 && done.has_loss()) result.loss = done.loss();
  result.token_count = weight_unit() == v1::WEIGHT_UNIT_STEPS
                           ? done.step_count()
                           : done.token_count();
  result.is_last = done.leave();
  result.index_digest = done.index_digest();
  return result;
}

// After the run's end no state was loaded, and none is needed.
absl::Status RemoteTrainer::Show() {
  before_write_();
  kept_.reset();
  return Write();
}

absl::StatusOr<EvaluationResult> RemoteTrainer::Evaluate(int64_t version) {
  before_write_();
  RETURN_IF_ERROR(Write());
  v1::TrainerMessage request;
  request.mutable_evaluate()->set_version(version);
  ASSIGN_OR_RETURN(const v1::TrainerMessage answer, host_.Ask(request));
  if (answer.evaluate().token_count() < 0) {
    return absl::OutOfRangeError(
        absl::StrCat("the trainer's evaluation is of ",
                     answer.evaluate().token_count(), " tokens"));
  }
  return EvaluationResult{.loss = answer.evaluate().loss(),
                          .token_count = answer.evaluate().token_count()};
}

absl::StatusOr<TrainerState> RemoteTrainer::Save(const std::string& save_id) {
  RETURN_IF_ERROR(DropKept());
  v1::TrainerMessage request;
  request.mutable_save()->set_save_id(save_id);
  ASSIGN_OR_RETURN(const v1::TrainerMessage answer, host_.Ask(request));
  return TrainerState{.save_id = answer.save().save_id()};
}

absl::Status RemoteTrainer::Load(const TrainerState& state) {
  if (!state.first_moment.empty() || !state.second_moment.empty()) {
    return absl::DataLossError("the local checkpoint is of Atoll's own engine");
  }
  return LoadId(state.save_id);
}

absl::Status RemoteTrainer::Reset() { return LoadId(""); }

void RemoteTrainer::SetRunEpoch(int64_t run_epoch,
                                int64_t restored_commit_seq) {
  run_epoch_ = run_epoch;
  restored_commit_seq_ = restored_commit_seq;
}

// The state of a trainer that has just started is of no epoch.
bool RemoteTrainer::IsFromBeforeRestore() const {
  return restored_commit_seq_ > 0 && trainer_epoch_ != run_epoch_ &&
         (has_state_ || hello_.has_state());
}

bool RemoteTrainer::keeps_state() const {
  return !IsFromBeforeRestore() && !is_strict_ && hello_.has_state() &&
         (!has_state_ || kept_.has_value());
}

// Only the first load of a connection finds a trainer with kept steps.
absl::Status RemoteTrainer::LoadId(const std::string& save_id) {
  bool keep = keeps_state();
  kept_.reset();
  if (!has_state_ && hello_.has_state() && !IsFromBeforeRestore()) {
    for (const v1::TrainerStanding& standing : hello_.standings()) {
      if (is_strict_ && standing.save_id() != save_id) continue;
      if (standing.step_count() == 0) {
        keep = true;
      } else if (is_in_rounds_) {
        kept_ = Kept{save_id, standing};
      }
    }
  }
  if (!kept_.has_value()) RETURN_IF_ERROR(SendLoad(save_id, keep));
  has_state_ = true;
  return absl::OkStatus();
}

absl::Status RemoteTrainer::DropKept() {
  if (!kept_.has_value()) return absl::OkStatus();
  const std::string save_id = std::exchange(kept_, std::nullopt)->save_id;
  return SendLoad(save_id, /*keep=*/!is_strict_);
}

absl::Status RemoteTrainer::SendLoad(const std::string& save_id, bool keep) {
  v1::TrainerMessage request;
  request.mutable_load()->set_save_id(save_id);
  request.mutable_load()->set_keep(keep);
  request.mutable_load()->set_run_epoch(run_epoch_);
  if (save_id.empty() && IsFromBeforeRestore()) {
    request.mutable_load()->set_restored_commit_seq(restored_commit_seq_);
    LOG(INFO) << "the trainer is told that the run was restored";
  }
  RETURN_IF_ERROR(host_.Ask(request).status());
  trainer_epoch_ = run_epoch_;
  return absl::OkStatus();
}

}  // namespace atl::worker
