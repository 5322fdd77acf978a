#include "worker/island/island_part.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/failpoint/failpoint.h"
#include "base/host_port/host_port.h"
#include "base/layout/exchange.h"
#include "base/layout/fragment_schedule.h"
#include "base/obs/log.h"
#include "base/status/not_finite.h"
#include "base/status/status_macros.h"
#include "worker/island/engine_trainer.h"

namespace atl::worker {

LocalDataRights GetLocalDataRights(const RunIslandOptions& options) {
  const absl::StatusOr<HostPort> coordinator =
      ParseHostPort(options.coordinator_address);
  return {.data_path = options.data_path,
          .roots = options.data_roots,
          .has_tls = !options.security.tls.empty(),
          .coordinator_is_loopback =
              coordinator.ok() && IsLoopbackHost(coordinator->host)};
}

IslandPart::IslandPart(const RunIslandOptions& options,
                       const IslandLinks& links, const v1::Run& run)
    : options_(options),
      links_(links),
      group_(links.group),
      spec_(run.spec()),
      streaming_(IsStreaming(run.spec().schedule())),
      has_own_trainer_(!links.make_island_trainer),
      training_threads_(options.thread_count, /*yields=*/false),
      save_threads_(options.thread_count, /*yields=*/true) {}

absl::StatusOr<std::unique_ptr<IslandPart>> IslandPart::Create(
    const RunIslandOptions& options, const IslandLinks& links,
    const v1::Run& run) {
  auto part = std::unique_ptr<IslandPart>(new IslandPart(options, links, run));
  RETURN_IF_ERROR(part->Agree(Lane::kTraining, part->Setup(run)));
  if (run.spec().schedule().timing() == v1::TIMING_ELASTIC) {
    const absl::StatusOr<double> speed = part->state_->trainer().MeasureSpeed();
    RETURN_IF_ERROR(part->Agree(Lane::kTraining, speed.status()));
    part->tokens_per_second_ = *speed;
  }
  return part;
}

absl::Status IslandPart::Agree(Lane lane, const absl::Status& status) const {
  return group_ == nullptr ? status : group_->Agree(lane, status);
}

absl::Status IslandPart::Setup(const v1::Run& run) {
  ASSIGN_OR_RETURN(std::unique_ptr<IslandTrainer> trainer, MakeTrainer(run));
  ASSIGN_OR_RETURN(state_, IslandState::Create(spec_, std::move(trainer)));
  state_->set_before_write([this] { copy_.Finish(); });
  state_->set_loop(training_threads_.loop());
  ResetEncoder();
  checkpoint_.emplace(*links_.file_system, MakeSavePlace(options_), group_,
                      state_->held(), UpCodec(spec_));
  token_counts_.assign(state_->layout().fragment_count(), 0);
  losses_.assign(token_counts_.size(), LossSum());
  if (!options_.work_directory.empty()) {
    RETURN_IF_ERROR(
        links_.file_system->CreateDirectories(options_.work_directory));
  }
  ASSIGN_OR_RETURN(parameters_,
                   links_.make_parameter_client(run, state_->held()));
  return absl::OkStatus();
}

// Encodes in the save lane if answers overlap with steps.
void IslandPart::ResetEncoder() {
  WorkThreads& threads = spec_.schedule().overlap_step_count() > 0
                             ? save_threads_
                             : training_threads_;
  encoder_.emplace(state_->held(), spec_, threads.loop());
}

absl::StatusOr<std::unique_ptr<IslandTrainer>> IslandPart::MakeTrainer(
    const v1::Run& run) {
  if (links_.make_island_trainer) {
    return links_.make_island_trainer(run, links_.join_first);
  }
  ASSIGN_OR_RETURN(const DataPlace place,
                   FindDataPlace(spec_.data(), GetLocalDataRights(options_)));
  if (!place.path.empty()) LOG(INFO) << "data: " << place.Describe();
  EngineTrainerOptions options;
  options.thread_count = options_.thread_count;
  options.data.path = place.path;
  options.data.cache_directory = options_.data_cache_directory;
  options.data.cache_bytes_max = options_.data_cache_bytes_max;
  options.data.bytes_per_second =
      options_.caps.down_bytes_per_second / options_.place.process_count;
  options.data.stop = options_.stop;
  options.data.came = links_.data_came;
  options.data.open_store = options_.open_data_store;
  options.make_trainer = links_.make_trainer;
  options.agree = [this](const absl::Status& status) {
    return Agree(Lane::kTraining, status);
  };
  return EngineTrainer::Create(spec_, options);
}

absl::Status IslandPart::lost() const {
  if (group_ != nullptr && !group_->lost().ok()) return group_->lost();
  return state_->trainer().lost();
}

void IslandPart::SetIdentity(int64_t island_epoch,
                             absl::string_view session_secret) {
  {
    MutexLock lock(&mutex_);
    island_epoch_ = island_epoch;
    session_secret_ = std::string(session_secret);
  }
  parameters_->SetIdentity(
      {options_.island_id, island_epoch, std::string(session_secret)});
}

void IslandPart::SetRoutes(const server::ShardRoutes& routes) {
  {
    MutexLock lock(&mutex_);
    routes_ = routes;
    ++route_count_;
  }
  parameters_->SetRoutes(routes);
}

void IslandPart::AddSession(PartCommand& command) const {
  MutexLock lock(&mutex_);
  command.island_epoch = island_epoch_;
  command.session_secret = session_secret_;
  command.routes = routes_;
}

void IslandPart::Resolve(const v1::ContributionOutcome& outcome) {
  encoder_->Resolve(outcome.key(), outcome.outcome() == v1::OUTCOME_MERGED);
}

// A streaming run's action ends in all processes before process 0 continues,
// because other lanes may build on it; no lane builds on a step. Each process
// keeps its own status of a push: process 0 may know that it is decided.
absl::Status IslandPart::Do(Lane lane, const PartCommand& command,
                            const server::CallBounds& bounds,
                            PartResult& result) {
  const absl::Status done = DoHere(lane, command, bounds, result);
  const ActionKind kind = command.action.kind;
  if (group_ == nullptr) return done;
  if (kind == ActionKind::kPush) {
    if (streaming_) RETURN_IF_ERROR(group_->Agree(lane, absl::OkStatus()));
    return done;
  }
  if (done.ok() && (!streaming_ || kind == ActionKind::kTrain)) return done;
  // If a process is gone, the group returns that instead of the ranks' error.
  return group_->Agree(lane, done);
}

absl::Status IslandPart::DoHere(Lane lane, const PartCommand& command,
                                const server::CallBounds& bounds,
                                PartResult& result) {
  const Action& action = command.action;
  switch (action.kind) {
    case ActionKind::kLoadSave:
      run_epoch_ = action.run_epoch;
      return LoadSave(result);
    case ActionKind::kRestoreSave:
      state_->trainer().SetRunEpoch(action.run_epoch, action.commit_seq);
      return RestoreSave(result);
    case ActionKind::kResetOptimizer:
      return ResetOptimizer(action);
    case ActionKind::kPull:
      return Pull(action, lane, bounds, result);
    case ActionKind::kBeginRound:
      absl::c_fill(token_counts_, 0);
      absl::c_fill(losses_, LossSum());
      state_->trainer().SetRunEpoch(action.run_epoch, action.commit_seq);
      return state_->BeginRound();
    case ActionKind::kTrain:
      return Train(action, result);
    case ActionKind::kContribute:
      return Contribute(command, result);
    case ActionKind::kSave:
      return SaveTaken(action, result);
    case ActionKind::kPush:
      return Push(action, lane, bounds, result);
    case ActionKind::kApply:
      return Apply(action);
    case ActionKind::kEvaluate:
      return Evaluate(action, bounds, result);
    default:
      return absl::InternalError(absl::StrCat(
          ActionName(action.kind), " is not an action of an island part"));
  }
}

absl::Status IslandPart::ResetOptimizer(const Action& action) {
  if (action.run_epoch != run_epoch_) {
    // The save of the past stays on disk until a later one replaces it: its
    // run_epoch tells that it no longer counts, and its header whose log the
    // island has seen.
    run_epoch_ = action.run_epoch;
    copy_.Finish();
    checkpoint_->Forget();
    replay_.reset();
    record_.reset();
    outbox_.Set({});
    taken_ = {};
    answers_.clear();
    absl::c_fill(token_counts_, 0);
    absl::c_fill(losses_, LossSum());
    const absl::Span<float> momentum = state_->eager_momentum();
    std::fill(momentum.begin(), momentum.end(), 0.0f);
    ResetEncoder();
  }
  state_->trainer().SetRunEpoch(action.run_epoch, action.commit_seq);
  return state_->Reset(action.warm_up);
}

absl::Status IslandPart::Train(const Action& action, PartResult& result) {
  ASSIGN_OR_RETURN(result.step,
                   state_->Train({.step = action.step,
                                  .step_count_max = action.step_count_max,
                                  .version = action.version,
                                  .data_shard = action.data_shard,
                                  .data_position = action.data_position}));
  CountSteps(result.step);
  failpoint::Hit("island.trained.after");
  return absl::OkStatus();
}

void IslandPart::CountSteps(const StepResult& step) {
  for (int64_t& count : token_counts_) count += step.token_count;
  for (LossSum& loss : losses_) loss.Add(step.loss, step.step_count);
}

absl::Status IslandPart::Evaluate(const Action& action,
                                  const server::CallBounds& bounds,
                                  PartResult& result) {
  if (action.only_show) {
    RETURN_IF_ERROR(state_->AcquireAll(LocalAccess::kReplace));
    RETURN_IF_ERROR(PullForEvaluation(action, bounds, result));
    return state_->trainer().Show();
  }
  ASSIGN_OR_RETURN(const bool can_evaluate, state_->trainer().CanEvaluate());
  if (!can_evaluate) return absl::OkStatus();
  RETURN_IF_ERROR(state_->KeepLocal());
  const absl::Status pulled = PullForEvaluation(action, bounds, result);
  const absl::StatusOr<EvaluationResult> evaluated =
      pulled.ok() ? state_->trainer().Evaluate(action.version) : pulled;
  RETURN_IF_ERROR(state_->TakeLocalBack());
  RETURN_IF_ERROR(evaluated.status());
  if (evaluated->token_count == 0) return absl::OkStatus();
  if (!std::isfinite(evaluated->loss)) {
    return NotFinite(NotFiniteOf::kOther,
                     absl::OutOfRangeError(absl::StrCat(
                         "the held-out loss is ", evaluated->loss)));
  }
  result.loss = evaluated->loss;
  result.token_count = evaluated->token_count;
  return absl::OkStatus();
}

}  // namespace atl::worker
