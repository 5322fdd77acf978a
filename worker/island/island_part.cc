#include "worker/island/island_part.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/failpoint/failpoint.h"
#include "base/layout/fragment_schedule.h"
#include "base/obs/log.h"
#include "base/status/status_macros.h"

namespace atl::worker {

IslandPart::IslandPart(const RunIslandOptions& options,
                       const IslandLinks& links, const v1::Run& run)
    : options_(options),
      links_(links),
      group_(links.group),
      spec_(run.spec()),
      streaming_(IsStreaming(run.spec().schedule())) {}

absl::StatusOr<std::unique_ptr<IslandPart>> IslandPart::Create(
    const RunIslandOptions& options, const IslandLinks& links,
    const v1::Run& run) {
  auto part = std::unique_ptr<IslandPart>(new IslandPart(options, links, run));
  RETURN_IF_ERROR(part->Agree(Lane::kTraining, part->Setup(run)));
  if (run.spec().schedule().timing() == v1::TIMING_ELASTIC) {
    RETURN_IF_ERROR(part->Agree(Lane::kTraining, part->MeasureSpeed()));
  }
  return part;
}

absl::Status IslandPart::Agree(Lane lane, const absl::Status& status) const {
  return group_ == nullptr ? status : group_->Agree(lane, status);
}

absl::Status IslandPart::Setup(const v1::Run& run) {
  ASSIGN_OR_RETURN(state_, IslandState::Create(spec_, options_.thread_count,
                                               links_.make_trainer));
  state_->set_before_write([this] { copy_.Finish(); });
  encoder_.emplace(state_->held(), spec_);
  RETURN_IF_ERROR(OpenData());
  if (!options_.work_directory.empty()) {
    RETURN_IF_ERROR(
        links_.file_system->CreateDirectories(options_.work_directory));
  }
  ASSIGN_OR_RETURN(parameters_,
                   links_.make_parameter_client(run, state_->held()));
  return absl::OkStatus();
}

absl::Status IslandPart::OpenData() {
  ASSIGN_OR_RETURN(std::unique_ptr<DataSet> data,
                   DataSet::Open(spec_.data(), options_.data_path));
  if (!spec_.data().fingerprint().empty()) {
    ASSIGN_OR_RETURN(data_fingerprint_, data->Fingerprint());
    if (data_fingerprint_ != spec_.data().fingerprint()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the data at \"",
          options_.data_path.empty() ? spec_.data().path() : options_.data_path,
          "\" is not the run's data: its fingerprint is ", data_fingerprint_,
          ", the run's is ", spec_.data().fingerprint(),
          "; copy the run's data to this machine and pass its path with "
          "--data"));
    }
  }
  ASSIGN_OR_RETURN(BatchReader reader,
                   BatchReader::Create(std::move(data), spec_));
  reader_.emplace(std::move(reader));
  return absl::OkStatus();
}

// Takes two steps: the first warms up memory and kernels, the second is timed.
// Their results are dropped: parameters are pulled later, the optimizer starts
// fresh. Ignores errors: the first round repeats and reports them.
absl::Status IslandPart::MeasureSpeed() {
  const absl::Status read =
      reader_->Read(/*data_shard=*/0, /*position=*/0, batch_);
  for (int i = 0; i < 2 && Agree(Lane::kTraining, read).ok(); ++i) {
    const absl::Time begin = absl::Now();
    const absl::StatusOr<StepResult> result = state_->Train(batch_, 0);
    if (!result.ok()) break;
    if (i == 0) continue;
    tokens_per_second_ =
        static_cast<double>(result->token_count) /
        std::max(1e-9, absl::ToDoubleSeconds(absl::Now() - begin));
  }
  return state_->ResetOptimizer(/*warm_up=*/false);
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

// An action of a streaming run ends in all processes before process 0 goes on,
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
      return LoadSave(result);
    case ActionKind::kRestoreSave:
      return RestoreSave(result);
    case ActionKind::kResetOptimizer:
      return state_->ResetOptimizer(action.warm_up);
    case ActionKind::kPull:
      return Pull(action, lane, bounds, result);
    case ActionKind::kBeginRound:
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
      return state_->ApplyAnchor(action.fragment, action.adopt);
    case ActionKind::kEvaluate:
      return Evaluate(action, bounds, result);
    default:
      return absl::InternalError(absl::StrCat(
          ActionName(action.kind), " is not an action of an island part"));
  }
}

absl::Status IslandPart::Train(const Action& action, PartResult& result) {
  RETURN_IF_ERROR(
      Agree(Lane::kTraining,
            reader_->Read(action.data_shard, action.data_position, batch_)));
  result.begin = absl::Now();
  ASSIGN_OR_RETURN(result.step, state_->Train(batch_, action.step));
  result.end = absl::Now();
  failpoint::Hit("island.trained.after");
  return absl::OkStatus();
}

absl::Status IslandPart::Evaluate(const Action& action,
                                  const server::CallBounds& bounds,
                                  PartResult& result) {
  absl::Status read;
  if (!evaluation_batch_.has_value()) {
    absl::StatusOr<Batch> batch = reader_->ReadEvaluation();
    read = batch.status();
    if (batch.ok()) evaluation_batch_ = *std::move(batch);
  }
  RETURN_IF_ERROR(Agree(Lane::kTraining, read));
  if (evaluation_batch_->inputs.empty()) {
    LOG(WARNING) << "the evaluation is skipped: the held-out data is shorter "
                 << "than one window; raise data.validation_fraction";
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(state_->KeepLocal());
  const absl::Status pulled = PullForEvaluation(action, bounds, result);
  const absl::StatusOr<double> evaluated =
      pulled.ok() ? state_->EvaluateLocal(*evaluation_batch_) : pulled;
  state_->TakeLocalBack();
  ASSIGN_OR_RETURN(result.loss, evaluated);
  result.token_count = static_cast<int64_t>(evaluation_batch_->inputs.size());
  return absl::OkStatus();
}

}  // namespace atl::worker
