#include "worker/api/island_runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/failpoint/failpoint.h"
#include "base/layout/fragment_schedule.h"
#include "base/layout/ids.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "worker/api/device.h"
#include "worker/api/retry_backoff.h"

namespace atl::worker {
namespace {

constexpr absl::Duration kFlushMax = absl::Seconds(5);
// The longest wait between two attempts to read the run.
constexpr absl::Duration kRunReadWaitMax = absl::Milliseconds(500);

}  // namespace

absl::StatusOr<std::unique_ptr<IslandRunner>> IslandRunner::Create(
    const RunIslandOptions& options, const IslandLinks& links) {
  RETURN_IF_ERROR(ValidateId("run_id", options.run_id));
  RETURN_IF_ERROR(ValidateId("island_id", options.island_id));
  if (options.thread_count < 1) {
    return absl::InvalidArgumentError("thread_count must be at least 1");
  }
  auto runner =
      std::unique_ptr<IslandRunner>(new IslandRunner(options, links));
  const absl::Time give_up = absl::Now() + options.join_patience;
  for (int attempt = 1;; ++attempt) {
    const absl::StatusOr<v1::Run> run = links.get_run();
    if (run.ok()) {
      RETURN_IF_ERROR(runner->Setup(*run));
      return runner;
    }
    const bool away = absl::IsUnavailable(run.status()) ||
                      absl::IsDeadlineExceeded(run.status());
    if (!away || absl::Now() > give_up) {
      return Annotate(run.status(), "cannot read the run");
    }
    if (options.stop.stop_requested()) {
      return absl::CancelledError("stopped before the run could be read");
    }
    if (attempt == 1) LOG(WARNING) << "cannot read the run yet: "
                                   << run.status();
    // One small call, and nothing is trained before it: asked often.
    runner->mailbox_.Wait(std::min(RetryBackoff(attempt), kRunReadWaitMax));
  }
}

absl::Status IslandRunner::Setup(const v1::Run& run) {
  spec_ = run.spec();
  streaming_ = IsStreaming(spec_.schedule());
  if (run.state() == v1::RUN_STATE_COMPLETED ||
      run.state() == v1::RUN_STATE_CANCELLED) {
    return absl::FailedPreconditionError(
        absl::StrCat("run ", options_.run_id, " has ended: there is nothing "
                     "left to train"));
  }
  ASSIGN_OR_RETURN(state_, IslandState::Create(spec_, options_.thread_count));
  encoder_.emplace(state_->layout(), spec_);
  ASSIGN_OR_RETURN(std::unique_ptr<DataSet> data,
                   DataSet::Open(spec_.data(), options_.data_path));
  if (!spec_.data().fingerprint().empty()) {
    ASSIGN_OR_RETURN(data_fingerprint_, data->Fingerprint());
    if (data_fingerprint_ != spec_.data().fingerprint()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the data at \"",
          options_.data_path.empty() ? spec_.data().path()
                                     : options_.data_path,
          "\" is not the run's: its fingerprint is ", data_fingerprint_,
          ", the run's is ", spec_.data().fingerprint(),
          "; copy the run's data here and give its path"));
    }
  }
  ASSIGN_OR_RETURN(BatchReader reader,
                   BatchReader::Create(std::move(data), spec_));
  reader_.emplace(std::move(reader));
  if (spec_.schedule().timing() == v1::TIMING_ELASTIC) {
    MeasureSpeed();
  }
  if (!options_.work_directory.empty()) {
    RETURN_IF_ERROR(
        links_.file_system->CreateDirectories(options_.work_directory));
  }
  ASSIGN_OR_RETURN(parameters_,
                   links_.make_parameter_client(spec_, state_->layout()));
  progress_.round_count = spec_.schedule().round_count();
  progress_.step_count = spec_.schedule().round_count() *
                         spec_.schedule().inner_step_count();
  return absl::OkStatus();
}

// Two steps before anything is pulled: the first touches memory and makes
// kernels, the second is timed. What they leave is not kept: parameters are
// pulled, the optimizer starts fresh. Best effort: what fails here fails again
// in the first round, with a better place to say so.
void IslandRunner::MeasureSpeed() {
  for (int i = 0; i < 2; ++i) {
    absl::Status read = reader_->Read(/*data_shard=*/0, /*position=*/0, batch_);
    const absl::Time begin = absl::Now();
    const absl::StatusOr<StepResult> result =
        read.ok() ? state_->Train(batch_, /*step=*/0) : read;
    if (!result.ok()) break;
    if (i == 0) continue;
    joining_tokens_per_second_ =
        static_cast<double>(result->token_count) /
        std::max(1e-9, absl::ToDoubleSeconds(absl::Now() - begin));
  }
  state_->ResetOptimizer(/*warm_up=*/false);
}

v1::JoinRequest IslandRunner::MakeJoinRequest() const {
  v1::JoinRequest request;
  request.set_run_id(options_.run_id);
  request.set_island_id(options_.island_id);
  v1::IslandCapabilities* capabilities = request.mutable_capabilities();
  *capabilities->add_devices() = DescribeCpu();
  capabilities->set_thread_count(options_.thread_count);
  capabilities->set_program_version(options_.program_version);
  capabilities->set_data_fingerprint(data_fingerprint_);
  capabilities->set_tokens_per_second(joining_tokens_per_second_);
  return request;
}

void IslandRunner::OnJoined(const v1::JoinResponse& response) {
  parameters_->SetIdentity({options_.island_id, response.island_epoch(),
                            response.session_secret()});
  parameters_->SetRoutes(server::RoutesOf(response.plan()));
}

void IslandRunner::OnPlan(const v1::IslandPlan& plan) {
  parameters_->SetRoutes(server::RoutesOf(plan));
}

absl::StatusOr<IslandProgress> IslandRunner::Run() {
  ControlLinkOptions link_options;
  link_options.join = MakeJoinRequest();
  link_options.join_patience = options_.join_patience;
  link_options.patience = options_.patience;
  ControlLink::Listener listener;
  listener.on_joined = [this](const v1::JoinResponse& r) { OnJoined(r); };
  listener.on_plan = [this](const v1::IslandPlan& p) { OnPlan(p); };
  link_ = std::make_unique<ControlLink>(link_options, *links_.coordinator,
                                        mailbox_, std::move(listener));
  // Who asks to stop need not wait for the next step's news.
  const std::stop_callback wake(options_.stop, [this] { mailbox_.Wake(); });
  const std::stop_callback stop_transfer(options_.stop_at_once, [this] {
    mailbox_.Wake();
    mailbox_.StopTransfer();
  });
  StartLanes();
  while (true) {
    int64_t seen = 0;
    const Action action = NextAction(Lane::kTraining, &seen);
    Report(action);
    if (action.kind == ActionKind::kFinish) {
      StopLanes();
      return Finish(action);
    }
    Do(action, seen);
  }
}

Action IslandRunner::NextAction(Lane lane, int64_t* seen) {
  MutexLock lock(&mutex_);
  *seen = mailbox_.DrainInto(loop_);
  if (lane == Lane::kTraining) LearnOutcomes();
  ForwardStops();
  Action action = loop_.Next(lane);
  if (streaming_ && action.kind != ActionKind::kWait) {
    loop_.OnStarted(lane, action);
  }
  return action;
}

void IslandRunner::Done(const Action& action, const absl::Status& status) {
  if (!status.ok()) {
    LOG(WARNING) << ActionName(action.kind) << " failed: " << status;
  }
  {
    MutexLock lock(&mutex_);
    loop_.OnDone(action, status);
  }
  // Other lanes may have waited for it.
  if (streaming_) mailbox_.Wake();
}

void IslandRunner::ForwardStops() {
  const int requested = options_.stop_at_once.stop_requested() ? 2
                        : options_.stop.stop_requested()       ? 1
                                                               : 0;
  for (; stops_forwarded_ < requested; ++stops_forwarded_) {
    loop_.OnStopRequested();
  }
}

void IslandRunner::Do(const Action& action, int64_t seen) {
  if (action.kind != ActionKind::kWait) wait_until_.reset();
  absl::Status status;
  switch (action.kind) {
    case ActionKind::kWait:
      return Wait(Lane::kTraining, action, seen, wait_until_);
    case ActionKind::kLoadSave: {
      std::optional<SaveSummary> save = LoadSave();
      {
        MutexLock lock(&mutex_);
        loop_.OnSaveLoaded(std::move(save));
      }
      return mailbox_.Wake();
    }
    case ActionKind::kRestoreSave:
      status = RestoreSave();
      break;
    case ActionKind::kResetOptimizer:
      state_->ResetOptimizer(action.warm_up);
      break;
    case ActionKind::kPull:
      status = Pull(action, Lane::kTraining);
      break;
    case ActionKind::kReportReady:
      status = link_->ReportReady(action.commit_seq);
      break;
    case ActionKind::kBeginRound:
      state_->BeginRound();
      loss_sum_ = 0;
      loss_count_ = 0;
      break;
    case ActionKind::kTrain:
      status = Train(action);
      break;
    case ActionKind::kContribute:
      status = Contribute(action);
      break;
    case ActionKind::kPush:
      status = Push(action, Lane::kTraining);
      break;
    case ActionKind::kApply:
      state_->ApplyAnchor(action.fragment, action.adopt);
      break;
    case ActionKind::kEvaluate:
      status = Evaluate(action);
      break;
    case ActionKind::kLeave:
      link_->Flush(kFlushMax);
      status = link_->Leave(action.reason);
      break;
    case ActionKind::kFinish:
      return;
  }
  Done(action, status);
}

// The error feedback of a contribution moves on when it is merged, and only
// then.
void IslandRunner::LearnOutcomes() {
  for (const v1::ContributionKey& key : encoder_->Pending()) {
    const v1::Outcome outcome = loop_.OutcomeOf(key);
    if (outcome == v1::OUTCOME_UNSPECIFIED) continue;
    encoder_->Resolve(key, outcome == v1::OUTCOME_MERGED);
  }
}

absl::Status IslandRunner::Train(const Action& action) {
  RETURN_IF_ERROR(
      reader_->Read(action.data_shard, action.data_position, batch_));
  const absl::Time begin = absl::Now();
  ASSIGN_OR_RETURN(const StepResult result,
                   state_->Train(batch_, action.step));
  const absl::Time end = absl::Now();
  {
    MutexLock lock(&mutex_);
    meter_.Stepped(begin, end);
  }
  step_speed_.Add(result.token_count, absl::ToDoubleSeconds(end - begin));
  failpoint::Hit("island.trained.after");
  progress_.tokens_per_second = step_speed_.tokens_per_second();
  progress_.step = action.step + 1;
  progress_.token_count += result.token_count;
  progress_.loss = result.loss;
  progress_.gradient_norm = result.gradient_norm;
  loss_sum_ += result.loss;
  ++loss_count_;
  link_->AddLoss(result.loss);
  return absl::OkStatus();
}

v1::ContributionInfo IslandRunner::DescribeContribution(
    const Action& action, const AnchoredFragment& at) const {
  v1::ContributionInfo info;
  info.mutable_key()->set_run_epoch(action.run_epoch);
  info.mutable_key()->set_fragment(at.fragment);
  info.mutable_key()->set_slot(action.slot);
  info.mutable_key()->set_seq(action.seq);
  info.set_anchor_version(at.anchor_version);
  info.set_step_count(action.step_count);
  info.set_token_count(action.step_count * spec_.inner().batch_size() *
                       spec_.model().sequence_length());
  info.set_data_shard(action.data_shard);
  info.set_data_begin(action.data_begin);
  info.set_data_end(action.data_position);
  return info;
}

// Outer gradient, encoding and what an eager island foresees: once for a key,
// for error feedback and local parameters move on with it.
absl::StatusOr<Outbox::Item> IslandRunner::MakeContribution(
    const Action& action, const AnchoredFragment& at) {
  v1::ContributionInfo info = DescribeContribution(action, at);
  for (const Outbox::Item& made : made_) {
    if (made->info.key().fragment() == at.fragment &&
        made->info.key().seq() == action.seq &&
        made->info.anchor_version() == at.anchor_version &&
        made->info.data_end() == info.data_end()) {
      return made;
    }
  }
  std::shared_ptr<EncodedContribution> item = outbox_.MakeItem();
  item->info = std::move(info);
  state_->OuterGradient(at.fragment, encoder_->GradientRoom(*item));
  RETURN_IF_ERROR(encoder_->Encode(*item));
  state_->Foresee(at.fragment, action.weight);
  return item;
}

absl::Status IslandRunner::Contribute(const Action& action) {
  const absl::Time begin = absl::Now();
  save_.reset();
  // In a run in rounds the contributions of the save before are decided: their
  // room is free.
  if (!streaming_ && made_.empty()) outbox_.Set({});
  std::vector<Outbox::Item> made;
  int64_t byte_count = 0;
  for (const AnchoredFragment& at : action.contributions) {
    ASSIGN_OR_RETURN(Outbox::Item item, MakeContribution(action, at));
    made.push_back(std::move(item));
    byte_count += state_->layout().fragment_element_count(at.fragment) *
                  static_cast<int64_t>(sizeof(float));
  }
  made_ = made;
  const SaveHeader header = DescribeSave(action);
  // What else is in flight stays in the SAVE.
  std::vector<Outbox::Item> items;
  for (const SavedTrack& track : header.summary.tracks) {
    Outbox::Item item = outbox_.Find(track.fragment, track.seq);
    if (track.seq != action.seq && item != nullptr) items.push_back(item);
  }
  items.insert(items.end(), made.begin(), made.end());
  failpoint::Hit("island.save.before");
  RETURN_IF_ERROR(WriteSaveOf(header, items));
  made_.clear();
  outbox_.Set(std::move(items));
  {
    MutexLock lock(&mutex_);
    meter_.Contributed(byte_count, absl::Now() - begin);
  }
  failpoint::Hit("island.save.after");
  LOG(INFO) << "contribution " << action.seq << ": " << action.step_count
            << " steps, training loss "
            << loss_sum_ / static_cast<double>(std::max<int64_t>(1, loss_count_))
            << ", " << static_cast<int64_t>(progress_.tokens_per_second)
            << " tokens/s";
  loss_sum_ = 0;
  loss_count_ = 0;
  return absl::OkStatus();
}

absl::Status IslandRunner::Evaluate(const Action& action) {
  if (!evaluation_batch_.has_value()) {
    ASSIGN_OR_RETURN(evaluation_batch_, reader_->ReadEvaluation());
  }
  if (evaluation_batch_->inputs.empty()) {
    LOG(WARNING) << "nothing is evaluated: fewer tokens are held out than one "
                 << "window takes";
    return absl::OkStatus();
  }
  state_->KeepLocal();
  const absl::Status pulled = PullForEvaluation(action);
  const absl::StatusOr<double> evaluated =
      pulled.ok() ? state_->EvaluateLocal(*evaluation_batch_) : pulled;
  state_->TakeLocalBack();
  ASSIGN_OR_RETURN(const double loss, evaluated);
  v1::Evaluation evaluation;
  evaluation.set_commit_seq(action.commit_seq);
  evaluation.set_version(action.version);
  evaluation.set_loss(loss);
  evaluation.set_token_count(
      static_cast<int64_t>(evaluation_batch_->inputs.size()));
  LOG(INFO) << "version " << action.version << ": held-out loss " << loss
            << " nats a token";
  link_->AddEvaluation(evaluation);
  progress_.evaluation = evaluation;
  failpoint::Hit("island.evaluated.after");
  return absl::OkStatus();
}

absl::StatusOr<IslandProgress> IslandRunner::Finish(const Action& action) {
  if (action.status.ok()) link_->Flush(kFlushMax);
  progress_.heartbeat_latency = link_->heartbeat_latency();
  link_.reset();
  if (absl::IsFailedPrecondition(action.status)) {
    // Joining again may be refused because the run has ended meanwhile.
    const absl::StatusOr<v1::Run> run = links_.get_run();
    if (run.ok() && run->state() == v1::RUN_STATE_COMPLETED) return progress_;
    if (run.ok() && run->state() == v1::RUN_STATE_CANCELLED) {
      return absl::CancelledError("the run was cancelled");
    }
  }
  RETURN_IF_ERROR(action.status);
  return progress_;
}

void IslandRunner::Log(const Action& action) {
  switch (action.kind) {
    // What every round does.
    case ActionKind::kBeginRound:
    case ActionKind::kTrain:
    case ActionKind::kContribute:
    case ActionKind::kPush:
    case ActionKind::kPull:
    case ActionKind::kApply:
      return;
    default:
      break;
  }
  std::string line = absl::StrCat(ActionName(action.kind), ": ", action.reason);
  if (line == logged_) return;
  LOG(INFO) << line;
  logged_ = std::move(line);
}

void IslandRunner::Report(const Action& action) {
  progress_.activity = ActionName(action.kind);
  progress_.reason = action.reason;
  {
    MutexLock lock(&mutex_);
    progress_.slot = loop_.joined() ? loop_.plan().slot() : -1;
    progress_.version =
        loop_.plan().cut_size() > 0 ? loop_.plan().cut(0).version() : 0;
    progress_.utilization = meter_.utilization();
    progress_.measured = meter_.measurements(progress_.tokens_per_second);
  }
  const server::TransferCounters counters = parameters_->counters();
  progress_.sent_bytes = counters.sent_payload_bytes;
  progress_.received_bytes = counters.received_payload_bytes;
  progress_.measured.round_trip_seconds =
      absl::ToDoubleSeconds(link_->heartbeat_latency().Quantile(0.5));
  if (!progress_.forecast.has_value()) {
    // The first estimate stays: what came after shows how good it was.
    const absl::StatusOr<planner::Forecast> forecast =
        ForecastOfRun(spec_, progress_.measured);
    if (forecast.ok()) progress_.forecast = *forecast;
    auto recipes = ForecastOfPresets(spec_, progress_.measured);
    if (recipes.ok()) progress_.recipes = *std::move(recipes);
  }
  Log(action);
  v1::ReportProgressRequest report;
  report.set_step(progress_.step);
  report.set_token_count(progress_.token_count);
  report.set_tokens_per_second(progress_.tokens_per_second);
  report.set_gradient_norm(progress_.gradient_norm);
  report.set_sent_bytes(progress_.sent_bytes);
  report.set_received_bytes(progress_.received_bytes);
  link_->SetProgress(report);
  if (options_.on_progress) options_.on_progress(progress_);
}

}  // namespace atl::worker
