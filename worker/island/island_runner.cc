#include "worker/island/island_runner.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/failpoint/failpoint.h"
#include "base/features/features.h"
#include "base/layout/fragment_schedule.h"
#include "base/layout/ids.h"
#include "base/layout/run_length.h"
#include "base/obs/log.h"
#include "base/obs/log_pace.h"
#include "base/rpc/retry.h"
#include "base/status/annotate.h"
#include "base/status/cut_utf8.h"
#include "base/status/not_finite.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "worker/core/check_plan.h"
#include "worker/core/data_awaited.h"
#include "worker/island/group/part_command.h"
#include "worker/save/save_set.h"

namespace atl::worker {
namespace {

constexpr absl::Duration kFlushMax = absl::Seconds(5);
// The longest Evaluation.failure.
constexpr size_t kFailureBytesMax = 256;
constexpr absl::Duration kRunReadWaitMax = absl::Milliseconds(500);
constexpr absl::Duration kOtherLogWaitMax = absl::Seconds(2);
constexpr char kNoTrainer[] = "its trainer has ended";

// The island's state is of another run with this run_id.
bool IsOfOtherRun(const absl::Status& status) {
  return HasReason(status, "OTHER_RUN");
}

// The answer does not tell whose log the coordinator has.
bool ProvesNothing(const absl::Status& status) {
  return IsOtherCluster(status) || IsLogFault(status) ||
         absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<IslandRunner>> IslandRunner::Create(
    const RunIslandOptions& options, const IslandLinks& links) {
  RETURN_IF_ERROR(ValidateId("run_id", options.run_id));
  RETURN_IF_ERROR(ValidateId("island_id", options.island_id));
  if (options.thread_count < 1) {
    return absl::InvalidArgumentError("thread_count must be at least 1");
  }
  auto runner = std::unique_ptr<IslandRunner>(new IslandRunner(options, links));
  const absl::StatusOr<v1::Run> run = runner->ReadRun();
  if (links.group != nullptr) {
    RETURN_IF_ERROR(links.group->Send(Lane::kTraining, EncodeSetup(run)));
  }
  RETURN_IF_ERROR(run.status());
  RETURN_IF_ERROR(runner->Setup(*run));
  return runner;
}

absl::StatusOr<v1::Run> IslandRunner::ReadRun() {
  RETURN_IF_ERROR(ReadNewestSave());
  const absl::Time begin = SystemClock().Now();
  LogPace pace;
  absl::StatusCode logged = absl::StatusCode::kOk;
  // Retries often: the call is small, and training waits for it.
  rpc::Backoff backoff({.max_delay = kRunReadWaitMax}, rpc::RandomSeed());
  rpc::Backoff other_log({.max_delay = kOtherLogWaitMax}, rpc::RandomSeed());
  while (true) {
    const absl::StatusOr<v1::Run> run = links_.get_run();
    const absl::Status same =
        run.ok() ? NoteRunUid(run->run_uid()) : run.status();
    if (IsOfOtherRun(same) || absl::IsNotFound(same)) {
      const absl::Status own = CheckWhoseLog();
      if (!own.ok()) {
        if (options_.stop.stop_requested()) {
          return absl::CancelledError("stopped before the run could be read");
        }
        if (pace.IsDue(own.message(), SystemClock().Now())) {
          LOG(WARNING) << "waits for its coordinator: " << own.message();
        }
        ShowWait(own);
        mailbox_.Wait(other_log.Next(own));
        continue;
      }
    }
    if (IsOfOtherRun(same)) return Explain(same);
    if (run.ok()) {
      if (run->state() == v1::RUN_STATE_COMPLETED) {
        return Refuse(absl::StatusCode::kFailedPrecondition, kRunCompleted,
                      absl::StrCat("run ", options_.run_id,
                                   " is complete: there is nothing left to "
                                   "train"));
      }
      if (run->state() == v1::RUN_STATE_CANCELLED) {
        return Refuse(absl::StatusCode::kFailedPrecondition, kRunCancelled,
                      absl::StrCat("run ", options_.run_id,
                                   " was cancelled: there is nothing left to "
                                   "train"));
      }
      RETURN_IF_ERROR(CheckFeatures(run->spec()));
      if (links_.check_run) RETURN_IF_ERROR(links_.check_run(run->spec()));
      return run;
    }
    const bool away = IsAway(run.status());
    const bool missing = absl::IsNotFound(run.status());
    const absl::Duration patience =
        missing ? options_.wait_for_run
                : std::max(options_.join_patience, options_.wait_for_run);
    if (!(away || missing) || SystemClock().Now() - begin >= patience) {
      return Annotate(run.status(), "cannot read the run");
    }
    if (options_.stop.stop_requested()) {
      return absl::CancelledError("stopped before the run could be read");
    }
    if (logged != run.status().code()) {
      logged = run.status().code();
      LOG(WARNING) << "cannot read the run yet; retries for at most "
                   << patience << ": " << run.status().message();
    }
    if (options_.metrics != nullptr) options_.metrics->SetReady(run.status());
    mailbox_.Wait(backoff.Next(run.status()));
  }
}

// The newest local checkpoint tells which run, and how far into the
// coordinator's log, this island was.
absl::Status IslandRunner::ReadNewestSave() {
  const FoundSaves found =
      FindSaves(*links_.file_system, MakeSavePlace(options_));
  if (found.sets.empty()) return absl::OkStatus();
  const SaveHeader& newest = found.sets.front().newest();
  log_seen_.Note(newest.log);
  return NoteRunUid(newest.run_uid);
}

// A Join without capabilities makes no member. But before anything else the
// coordinator compares its log with what the caller has seen.
absl::Status IslandRunner::CheckWhoseLog() {
  v1::JoinRequest request;
  request.set_run_id(options_.run_id);
  request.set_island_id(options_.island_id);
  log_seen_.AddTo(request);
  if (!request.has_log_seen()) return absl::OkStatus();  // It has seen none.
  const absl::Status answer = links_.coordinator->Join(request).status();
  return ProvesNothing(answer) ? answer : absl::OkStatus();
}

void IslandRunner::ShowWait(const absl::Status& why) {
  if (options_.metrics != nullptr) options_.metrics->SetReady(why);
  progress_.activity = ActionName(ActionKind::kWait);
  progress_.reason =
      absl::StrCat("waits for its coordinator: ", why.message());
  progress_.slot = -1;
  if (options_.on_progress) options_.on_progress(progress_);
}

absl::Status IslandRunner::NoteRunUid(const std::string& run_uid) {
  MutexLock lock(&mutex_);
  if (run_uid_.empty()) run_uid_ = run_uid;
  return CheckRunUid(run_uid_, run_uid);
}

absl::Status IslandRunner::Setup(const v1::Run& run) {
  spec_ = run.spec();
  {
    MutexLock lock(&mutex_);
    loop_.set_shows_end(static_cast<bool>(links_.make_island_trainer));
  }
  streaming_ = IsStreaming(spec_.schedule());
  {
    MutexLock lock(&mutex_);
    phases_.set_streaming(streaming_);
  }
  if (options_.metrics != nullptr) {
    metrics_.emplace(*options_.metrics, options_.run_id, spec_);
  }
  absl::StatusOr<std::unique_ptr<IslandPart>> part =
      IslandPart::Create(options_, links_, run);
  // The link of Run() joins again, with what the trainer has told.
  first_join_.reset();
  if (!part.ok()) GiveUpPlace(part.status());
  ASSIGN_OR_RETURN(part_, std::move(part));
  progress_.round_count = spec_.schedule().round_count();
  progress_.step_count = PlannedStepCount(spec_);
  return absl::OkStatus();
}

absl::StatusOr<v1::JoinResponse> IslandRunner::JoinFirst() {
  ControlLinkOptions options;
  options.join = MakeJoinRequest();
  options.join_patience = options_.join_patience;
  options.patience = options_.patience;
  first_join_ = std::make_unique<FirstJoin>(options, *links_.coordinator);
  ASSIGN_OR_RETURN(v1::JoinResponse joined, first_join_->Wait(options_.stop));
  has_place_ = true;
  RETURN_IF_ERROR(NoteRunUid(joined.run().run_uid()));
  RETURN_IF_ERROR(CheckJoin(spec_, joined));
  return joined;
}

void IslandRunner::GiveUpPlace(const absl::Status& why) {
  if (!has_place_.exchange(false)) return;
  // Its next life has the place. A leave would change a strict run's bits.
  if (spec_.schedule().timing() == v1::TIMING_STRICT &&
      (IsProcessLost(why) || EndsForRestart())) {
    return;
  }
  LOG(WARNING) << "leaves the run: its trainer has not used the place";
  links_.coordinator->Leave(MakeLeave(kNoTrainer)).IgnoreError();  // The lease ends.
}

v1::JoinRequest IslandRunner::MakeJoinRequest() const {
  v1::JoinRequest request;
  request.set_run_id(options_.run_id);
  request.set_island_id(options_.island_id);
  v1::IslandCapabilities* capabilities = request.mutable_capabilities();
  *capabilities->add_devices() = links_.describe_device();
  capabilities->set_thread_count(options_.thread_count);
  capabilities->set_program_version(options_.program_version);
  if (part_ == nullptr) {  // Its trainer tells what it has in its hello.
    capabilities->set_data_fingerprint(spec_.data().fingerprint());
    capabilities->set_weight_unit(spec_.weight_unit());
  } else {
    capabilities->set_data_fingerprint(part_->data_fingerprint());
    capabilities->set_frozen_digest(part_->frozen_digest());
    capabilities->set_weight_unit(part_->weight_unit());
    capabilities->set_tokens_per_second(part_->tokens_per_second());
  }
  capabilities->set_features(ProgramFeatures());
  log_seen_.AddTo(request);
  MutexLock lock(&mutex_);
  request.set_run_uid(run_uid_);
  return request;
}

absl::Status IslandRunner::OnJoined(const v1::JoinResponse& response) {
  has_place_ = false;
  RETURN_IF_ERROR(NoteRunUid(response.run().run_uid()));
  RETURN_IF_ERROR(CheckJoin(spec_, response));
  log_seen_.Note(response.plan().log());
  part_->SetIdentity(response.island_epoch(), response.session_secret());
  part_->SetRoutes(server::ToRoutes(response.plan()));
  TellServers(response.plan());
  NoteRunEpoch(response.plan().run_epoch());
  MutexLock lock(&mutex_);
  contributions_.Joined(response);
  return absl::OkStatus();
}

absl::Status IslandRunner::OnPlan(const v1::IslandPlan& plan) {
  RETURN_IF_ERROR(NoteRunUid(plan.run_uid()));
  RETURN_IF_ERROR(CheckPlan(spec_, plan));
  log_seen_.Note(plan.log());
  part_->SetRoutes(server::ToRoutes(plan));
  NoteRunEpoch(plan.run_epoch());
  if (plan.run_state() != v1::RUN_STATE_ACTIVE) {
    part_->InterruptTraining(/*at_once=*/false);
  }
  if (plan.warning() != warning_) {
    warning_ = plan.warning();
    if (!warning_.empty()) {
      LOG(WARNING) << "this island: " << warning_;
      part_->Notify(absl::StrCat("this island: ", warning_));
    }
  }
  TellServers(plan);
  return absl::OkStatus();
}

absl::StatusOr<IslandProgress> IslandRunner::Run() {
  ControlLinkOptions link_options;
  link_options.join = MakeJoinRequest();
  link_options.join_patience = options_.join_patience;
  link_options.patience = options_.patience;
  link_options.trainer_silence = [this] { return part_->trainer_silence(); };
  ControlLink::Listener listener;
  listener.on_joined = [this](const v1::JoinResponse& joined) {
    return OnJoined(joined);
  };
  listener.on_plan = [this](const v1::IslandPlan& plan) {
    return OnPlan(plan);
  };
  link_ = std::make_unique<ControlLink>(link_options, *links_.coordinator,
                                        mailbox_, std::move(listener));
  // A stop request ends a wait at once.
  const std::stop_callback wake(options_.stop, [this] {
    mailbox_.Wake();
    part_->InterruptTraining(/*at_once=*/EndsForRestart());
  });
  const std::stop_callback stop_transfer(options_.stop_at_once, [this] {
    mailbox_.Wake();
    mailbox_.StopTransfer();
    part_->InterruptTraining(/*at_once=*/true);
  });
  if (options_.control != nullptr) {
    options_.control->Listen([this] {
      mailbox_.Wake();
      part_->InterruptTraining(/*at_once=*/false);
    });
  }
  StartLanes();
  while (true) {
    int64_t seen = 0;
    const Action action = NextAction(Lane::kTraining, &seen);
    Report(action);
    if (action.kind == ActionKind::kFinish) {
      StopLanes();
      EndOthers(Lane::kTraining, action.status);
      return Finish(action);
    }
    const absl::Time begin = absl::Now();
    Do(action, seen);
    if (action.kind != ActionKind::kTrain) Paused(action, absl::Now() - begin);
    if (lost()) {
      StopLanes();
      // The next attempt joins under the same id. Until then an elastic run's
      // rounds must not wait; a leave would change a strict run's bits.
      if (links_.make_island_trainer &&
          spec_.schedule().timing() == v1::TIMING_STRICT) {
        link_->TellLastPhase(v1::ISLAND_PHASE_NO_TRAINER, kNoTrainer);
      } else if (links_.make_island_trainer) {
        LOG(WARNING) << "no trainer: leaves the run until one comes";
        SendUnpushed(/*leaves=*/true);
        link_->Flush(kFlushMax);  // It may tell of a failed evaluation.
        // Else the lease ends by itself.
        link_->Leave(MakeLeave(kNoTrainer)).IgnoreError();
      }
      link_.reset();
      return part_->lost();
    }
  }
}

IslandRunner::~IslandRunner() {
  if (options_.control != nullptr) options_.control->Listen(nullptr);
}

bool IslandRunner::lost() const { return !part_->lost().ok(); }

void IslandRunner::EndOthers(Lane lane, const absl::Status& status) {
  if (links_.group == nullptr) return;
  PartCommand command;
  command.action.kind = ActionKind::kFinish;
  command.action.status = status;
  // If Send fails, the group has ended for all processes.
  links_.group->Send(lane, EncodeCommand(command)).IgnoreError();
}

void IslandRunner::NoteRunEpoch(int64_t run_epoch) {
  bool is_restored = false;
  {
    MutexLock lock(&mutex_);
    is_restored = newest_run_epoch_ > 0 && run_epoch > newest_run_epoch_;
    newest_run_epoch_ = std::max(newest_run_epoch_, run_epoch);
  }
  // Further steps are in vain.
  if (is_restored) part_->InterruptTraining(/*at_once=*/false);
}

void IslandRunner::SettleRestore() {
  if (loop_.run_epoch() == run_epoch_seen_) return;
  if (run_epoch_seen_ > 0) {
    LOG(WARNING) << "the run was restored to an earlier commit: starts afresh "
                    "from its parameters, as run_epoch "
                 << loop_.run_epoch();
    phases_.EndAll();
  }
  run_epoch_seen_ = loop_.run_epoch();
}

Action IslandRunner::NextAction(Lane lane, int64_t* seen) {
  MutexLock lock(&mutex_);
  *seen = mailbox_.DrainInto(loop_);
  SettleRestore();
  phases_.Settle(
      [this](const AnchoredFragment& at, int64_t seq) {
        return loop_.IsDecided(at, seq);
      },
      absl::Now());
  if (lane == Lane::kTraining && *seen != outcomes_seen_) {
    outcomes_seen_ = *seen;
    TellOutcomes();
  }
  if (lane == Lane::kTraining && !loop_.saving()) LearnOutcomes();
  ForwardWishes();
  Action action = loop_.Next(lane);
  if (streaming_ && action.kind != ActionKind::kWait) {
    loop_.OnStarted(lane, action);
  }
  return action;
}

void IslandRunner::Done(const Action& action, const absl::Status& status) {
  // The attempt is over: the loop must not act on this result.
  if (lost()) return;
  if (absl::IsCancelled(status)) {
    LOG(INFO) << ActionName(action.kind) << " cancelled: " << status.message();
  } else if (!status.ok() && !IsDataAwaited(status)) {  // The wait tells why.
    LOG(WARNING) << ActionName(action.kind) << " failed: " << status.message();
  }
  if (FindNotFinite(status).has_value() &&
      action.kind != ActionKind::kEvaluate) {
    part_->Notify(absl::StrCat(status.message(),
                               ": its steps are lost, and the run's parameters "
                               "are written again"));
  }
  {
    MutexLock lock(&mutex_);
    loop_.OnDone(action, status);
  }
  // Other lanes may wait for an action, but never for a step.
  const bool is_step = action.kind == ActionKind::kTrain &&
                       (status.ok() || IsDataAwaited(status));
  if (streaming_ && !is_step) mailbox_.Wake();
}

// A leave would change the run's members, and so a strict run's bits.
bool IslandRunner::EndsForRestart() const {
  return options_.stop_for_restart.stop_requested() &&
         spec_.schedule().timing() == v1::TIMING_STRICT;
}

void IslandRunner::ForwardWishes() {
  if (options_.control != nullptr) {
    const IslandControl::Wishes wishes = options_.control->Get();
    loop_.OnHold(wishes.hold);
    if (wishes.finish) loop_.OnFinish();
  }
  int requested = options_.stop_at_once.stop_requested() ? 2
                  : options_.stop.stop_requested()       ? 1
                                                         : 0;
  if (requested == 1 && EndsForRestart()) requested = 2;
  if (trainer_ended_) requested = std::max(requested, 1);
  if (links_.group != nullptr) {
    requested = std::max(requested, links_.group->stop());
  }
  for (; stops_forwarded_ < requested; ++stops_forwarded_) {
    loop_.OnStopRequested();
  }
}

void IslandRunner::Do(Action action, int64_t seen) {
  if (action.kind != ActionKind::kWait) {
    wait_until_.reset();
    reason_time_.reset();
  }
  absl::Status status;
  switch (action.kind) {
    case ActionKind::kWait:
      Wait(Lane::kTraining, action, seen, wait_until_).IgnoreError();
      return;
    case ActionKind::kReportReady:
      status = link_->ReportReady(action.commit_seq);
      break;
    case ActionKind::kLeave:
      link_->Flush(kFlushMax);
      status = link_->Leave(MakeLeave(action.reason));
      break;
    case ActionKind::kFinish:
      return;
    default:
      status = DoTogether(Lane::kTraining, action);
      if (action.kind == ActionKind::kLoadSave) return mailbox_.Wake();
  }
  Done(action, status);
}

absl::Status IslandRunner::DoTogether(Lane lane, Action& action) {
  PartCommand command;
  command.action = action;
  if (action.kind == ActionKind::kContribute) {
    command.save = DescribeSave(action);
  }
  if (links_.group != nullptr) {
    if (NeedsSession(action.kind)) part_->AddSession(command);
    if (lane == Lane::kTraining) {
      MutexLock lock(&mutex_);
      command.resolved.swap(untold_);
    }
    RETURN_IF_ERROR(links_.group->Send(lane, EncodeCommand(command)));
  }
  const absl::Time begin = absl::Now();
  if (action.kind == ActionKind::kContribute) {
    MutexLock lock(&mutex_);
    phases_.EncodeBegan(action.seq, action.contributions, begin);
  }
  PartResult result;
  const absl::Status status = NeedsSession(action.kind)
                                  ? DoTransfer(lane, command, result)
                                  : part_->Do(lane, command, {}, result);
  if (action.kind == ActionKind::kLoadSave) {
    if (lost()) return status;
    MutexLock lock(&mutex_);
    loop_.OnSaveLoaded(std::move(result.save));
  }
  action.repeats_steps = result.repeats_steps;
  if (action.kind == ActionKind::kEvaluate) Evaluated(action, status, result);
  RETURN_IF_ERROR(status);
  switch (action.kind) {
    case ActionKind::kRestoreSave: {
      action.unfinished = result.unfinished;
      progress_.step = result.saved_step;
      MutexLock lock(&mutex_);
      if (result.step.is_last) trainer_ended_ = true;
      break;
    }
    case ActionKind::kResetOptimizer:
      if (std::exchange(reset_run_epoch_, action.run_epoch) !=
          action.run_epoch) {
        link_->ForgetSteps();
      }
      break;
    case ActionKind::kBeginRound: {
      MutexLock lock(&mutex_);
      phases_.Began();
      break;
    }
    case ActionKind::kTrain:
      action.done_step_count = result.step.step_count;
      action.done_token_count = result.step.token_count;
      Trained(action, result);
      break;
    case ActionKind::kContribute:
      Contributed(action, result);
      if (action.in_background) break;
      [[fallthrough]];
    case ActionKind::kSave: {
      if (result.acknowledged_seq.has_value()) {
        link_->SetAcknowledged(*result.acknowledged_seq);
      }
      const absl::Time now = absl::Now();
      MutexLock lock(&mutex_);
      saved_bytes_ += result.saved_bytes;
      meter_.Contributed(result.byte_count, now - begin);
      phases_.EncodeEnded(action.seq, now);
      break;
    }
    case ActionKind::kApply: {
      MutexLock lock(&mutex_);
      phases_.Applied(action.fragment, action.version, absl::Now());
      break;
    }
    default:
      break;
  }
  return absl::OkStatus();
}

// The encoder needs outcomes: error feedback advances only with a merge.
void IslandRunner::LearnOutcomes() {
  for (const v1::ContributionKey& key : part_->Pending()) {
    const v1::Outcome outcome = loop_.FindOutcome(key);
    if (outcome == v1::OUTCOME_UNSPECIFIED) continue;
    v1::ContributionOutcome known;
    *known.mutable_key() = key;
    known.set_outcome(outcome);
    part_->Resolve(known);
    if (links_.group != nullptr) untold_.push_back(std::move(known));
  }
}

void IslandRunner::Trained(const Action& action, const PartResult& result) {
  const StepResult& step = result.step;
  {
    MutexLock lock(&mutex_);
    if (step.is_last) trainer_ended_ = true;
    if (step.step_count == 0) return;
    meter_.Stepped(step.begin, step.end);
    phases_.Stepped(step.begin, step.end);
  }
  hindrance_.clear();
  if (!step.index_digest.empty()) index_digest_ = step.index_digest;
  const int64_t timed = step.step_count - step.kept_step_count;
  if (timed > 0) {
    step_speed_.Add(step.token_count * timed / step.step_count,
                    absl::ToDoubleSeconds(step.end - step.begin));
  }
  progress_.tokens_per_second = step_speed_.tokens_per_second();
  progress_.step = action.step + step.step_count;
  progress_.token_count += step.token_count;
  tokens_a_step_ = step.token_count / step.step_count;
  progress_.loss = step.loss;
  progress_.gradient_norm = step.gradient_norm;
  if (step.loss.has_value()) link_->AddLoss(*step.loss);
  link_->AddMetrics(step.metrics, step.token_count);
}

void IslandRunner::Paused(const Action& action, absl::Duration span) {
  const bool waited = action.kind == ActionKind::kWait;
  const std::string what = waited ? absl::StrCat("wait: ", Subject(action))
                                  : std::string(ActionName(action.kind));
  MutexLock lock(&mutex_);
  meter_.Paused(what, span);
}

SaveHeader IslandRunner::DescribeSave(const Action& action) const {
  SaveHeader header;
  SaveSummary& summary = header.summary;
  {
    MutexLock lock(&mutex_);
    header.run_uid = run_uid_;
    if (streaming_) {
      summary = loop_.StreamSave(action);
    } else if (action.contributions[0].fragment == 0) {
      summary = loop_.FindEvaluator(action.contributions[0].anchor_version + 1);
    }
  }
  summary.run_id = options_.run_id;
  summary.run_epoch = action.run_epoch;
  summary.slot = action.slot;
  summary.seq = action.seq;
  summary.data_shard = action.data_shard;
  summary.data_position = action.data_position;
  summary.unpushed = link_->ListUnpushed();
  header.step = progress_.step;
  header.log = log_seen_.newest();
  return header;
}

void IslandRunner::Contributed(const Action& action,
                               const PartResult& result) {
  LOG(INFO) << "contribution " << action.seq << ": " << action.step_count
            << " steps, "
            << (result.loss.has_value()
                    ? absl::StrCat("training loss ", *result.loss, ", ")
                    : "")
            << static_cast<int64_t>(progress_.tokens_per_second)
            << " tokens/s";
  MutexLock lock(&mutex_);
  contributions_.Made(action.seq, action.step_count * tokens_a_step_,
                      loop_.plan().cut_size());
}

void IslandRunner::Evaluated(const Action& action, const absl::Status& status,
                             const PartResult& result) {
  if (action.checks_anchors || action.only_show) return;
  // The island does not evaluate.
  if (status.ok() && !result.loss.has_value()) return;
  // These are tried again, unless the island ends.
  if (IsDataAwaited(status) || absl::IsCancelled(status) || lost()) return;
  {
    MutexLock lock(&mutex_);
    if (action.run_epoch < newest_run_epoch_) return;  // Its version is lost.
  }
  v1::Evaluation evaluation;
  evaluation.set_commit_seq(action.commit_seq);
  evaluation.set_version(action.version);
  if (!status.ok()) {
    evaluation.set_loss(std::numeric_limits<double>::quiet_NaN());
    evaluation.set_failure(
        std::string(CutUtf8(status.message(), kFailureBytesMax)));
    link_->AddEvaluation(evaluation);
    return;
  }
  evaluation.set_loss(*result.loss);
  evaluation.set_token_count(result.token_count);
  LOG(INFO) << "version " << action.version << ": held-out loss "
            << *result.loss << " nats a token";
  link_->AddEvaluation(evaluation);
  progress_.evaluation = evaluation;
  failpoint::Hit("island.evaluated.after");
}

v1::LeaveRequest IslandRunner::MakeLeave(const std::string& reason) const {
  v1::LeaveRequest leave;
  leave.set_reason(reason);
  leave.set_step(progress_.step);
  if (progress_.loss.has_value()) leave.set_loss(*progress_.loss);
  return leave;
}

// Adds the remedy to an error of IsOfOtherRun.
absl::Status IslandRunner::Explain(const absl::Status& status) const {
  const SavePlace place = MakeSavePlace(options_);
  return Annotate(
      status,
      absl::StrCat("this island's files of run ", place.run_id,
                   " belong to another run with that id. Nothing was deleted. "
                   "Its local checkpoints, ",
                   place.directory, "/", place.run_id, ".", place.island_id,
                   "*.save and *.records, stay. To take part in this run, join "
                   "with another --dir (work_dir= in Python)"));
}

absl::StatusOr<IslandProgress> IslandRunner::Finish(const Action& action) {
  if (action.status.ok()) link_->Flush(kFlushMax);
  progress_.heartbeat_latency = link_->heartbeat_latency();
  link_.reset();
  GiveUpPlace(action.status);
  if (IsOfOtherRun(action.status)) return Explain(action.status);
  if (absl::IsFailedPrecondition(action.status)) {
    // A join is also refused if the run has ended meanwhile.
    const absl::StatusOr<v1::Run> run = links_.get_run();
    const bool ours = run.ok() && NoteRunUid(run->run_uid()).ok();
    if (ours && run->state() == v1::RUN_STATE_COMPLETED) {
      if (!links_.make_island_trainer) {
        progress_.is_complete = true;
        return progress_;
      }
      // The trainer lacks the final parameters.
      return Refuse(absl::StatusCode::kFailedPrecondition, kRunCompleted,
                    absl::StrCat("run ", options_.run_id, " is complete"));
    }
    if (ours && run->state() == v1::RUN_STATE_CANCELLED) {
      return Refuse(absl::StatusCode::kCancelled, kRunCancelled,
                    "the run was cancelled");
    }
  }
  RETURN_IF_ERROR(action.status);
  MutexLock lock(&mutex_);
  progress_.is_complete =
      !loop_.left() && loop_.plan().run_state() == v1::RUN_STATE_COMPLETED;
  return progress_;
}

}  // namespace atl::worker
