#include "worker/api/island_runner.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/failpoint/failpoint.h"
#include "base/io/files.h"
#include "base/layout/digest.h"
#include "base/layout/encoded_layout.h"
#include "base/layout/exchange.h"
#include "base/layout/ids.h"
#include "base/layout/exchange.h"
#include "base/layout/run_timing.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "worker/api/device.h"

namespace atl::worker {
namespace {

// Longest wait without news.
constexpr absl::Duration kIdleWait = absl::Seconds(1);
// Longest that nothing of a push or pull moves before the loop looks around: a
// slow link may take hours. An island that leaves gives a push so long in all.
constexpr absl::Duration kTransferIdleMax = absl::Seconds(30);
constexpr absl::Duration kFlushMax = absl::Seconds(5);
constexpr absl::Duration kBackoffMin = absl::Milliseconds(100);
constexpr absl::Duration kBackoffMax = absl::Seconds(5);

// The longest wait between two attempts to read the run.
constexpr absl::Duration kRunReadWaitMax = absl::Milliseconds(500);

absl::Duration BackoffOf(int failure_count) {
  absl::Duration delay = kBackoffMin;
  for (int i = 1; i < failure_count && delay < kBackoffMax; ++i) delay *= 2;
  return std::min(delay, kBackoffMax);
}

int64_t CutVersion(const v1::IslandPlan& plan, int32_t fragment) {
  return fragment < plan.cut_size() ? plan.cut(fragment).version() : -1;
}

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
    runner->mailbox_.Wait(std::min(BackoffOf(attempt), kRunReadWaitMax));
  }
}

absl::Status IslandRunner::Setup(const v1::Run& run) {
  spec_ = run.spec();
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

std::string IslandRunner::SavePath() const {
  return absl::StrCat(
      options_.work_directory.empty() ? "." : options_.work_directory, "/",
      options_.run_id, ".", options_.island_id, ".save");
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
  while (true) {
    mailbox_.DrainInto(loop_);
    LearnOutcomes();
    ForwardStops();
    const Action action = loop_.Next();
    Report(action);
    if (action.kind == ActionKind::kFinish) return Finish(action);
    Do(action);
  }
}

void IslandRunner::ForwardStops() {
  const int requested = options_.stop_at_once.stop_requested() ? 2
                        : options_.stop.stop_requested()       ? 1
                                                               : 0;
  for (; stops_forwarded_ < requested; ++stops_forwarded_) {
    loop_.OnStopRequested();
  }
}

void IslandRunner::Do(const Action& action) {
  if (action.kind != ActionKind::kWait) wait_until_.reset();
  absl::Status status;
  switch (action.kind) {
    case ActionKind::kWait:
      return Wait(action);
    case ActionKind::kLoadSave:
      return loop_.OnSaveLoaded(LoadSave());
    case ActionKind::kRestoreSave:
      status = RestoreSave();
      break;
    case ActionKind::kResetOptimizer:
      state_->ResetOptimizer(action.warm_up);
      break;
    case ActionKind::kPull:
      status = Pull(action);
      break;
    case ActionKind::kReportReady:
      status = link_->ReportReady(action.commit_seq);
      break;
    case ActionKind::kBeginRound:
      state_->BeginRound();
      loss_sum_ = 0;
      break;
    case ActionKind::kTrain:
      status = Train(action);
      break;
    case ActionKind::kContribute:
      status = Contribute(action);
      break;
    case ActionKind::kPush:
      status = Push(action);
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
  if (!status.ok()) {
    LOG(WARNING) << ActionName(action.kind) << " failed: " << status;
  }
  loop_.OnDone(action, status);
}

void IslandRunner::Wait(const Action& action) {
  const absl::Time now = absl::Now();
  if (action.failure_count == 0) {
    wait_until_.reset();
    mailbox_.Wait(kIdleWait);
    return;
  }
  if (!wait_until_.has_value()) {
    wait_until_ = now + BackoffOf(action.failure_count);
  }
  if (now >= *wait_until_) {
    wait_until_.reset();
    loop_.OnWaited();
    return;
  }
  mailbox_.Wait(*wait_until_ - now);
}

std::optional<SaveSummary> IslandRunner::LoadSave() {
  absl::StatusOr<Save> save = ReadSave(*links_.file_system, SavePath());
  if (absl::IsNotFound(save.status())) return std::nullopt;
  if (!save.ok()) {
    LOG(WARNING) << SavePath() << " is not used, training goes on from the "
                 << "servers' parameters: " << save.status();
    return std::nullopt;
  }
  const SaveHeader& header = save->header;
  SaveSummary summary;
  summary.run_id = header.run_id;
  summary.run_epoch = header.run_epoch;
  summary.slot = header.slot;
  summary.seq = header.seq;
  summary.data_shard = header.data_shard;
  summary.data_position = header.data_position;
  summary.evaluator_version = header.evaluator_version;
  summary.evaluator_index = header.evaluator_index;
  summary.evaluator_count = header.evaluator_count;
  const codec::Codec& codec = UpCodec(spec_);
  for (const EncodedContribution& contribution : save->contributions) {
    const v1::ContributionInfo& info = contribution.info;
    const int32_t f = info.key().fragment();
    if (f < 0 || f >= state_->layout().fragment_count() ||
        info.codec() != ProtoOf(codec) ||
        static_cast<int64_t>(contribution.bytes.size()) !=
            EncodedLayout(state_->layout(), f, codec).byte_count()) {
      LOG(WARNING) << SavePath() << " is of another layout and not used";
      return std::nullopt;
    }
    summary.contributions.push_back({f, info.anchor_version()});
  }
  save_ = *std::move(save);
  return summary;
}

absl::Status IslandRunner::RestoreSave() {
  if (!save_.has_value()) return absl::InternalError("there is no save");
  const engine::OptimizerState state =
      state_->trainer().optimizer_state();
  if (state.first_moment.size() != save_->first_moment.size() ||
      state.second_moment.size() != save_->second_moment.size()) {
    return absl::DataLossError("the save is of another optimizer");
  }
  for (SavedFeedback& feedback : save_->feedback) {
    const absl::Status restored = encoder_->Restore(feedback.View());
    if (!restored.ok()) {
      encoder_.emplace(state_->layout(), spec_);
      return restored;
    }
  }
  save_->feedback.clear();
  std::copy(save_->first_moment.begin(), save_->first_moment.end(),
            state.first_moment.begin());
  std::copy(save_->second_moment.begin(), save_->second_moment.end(),
            state.second_moment.begin());
  state_->trainer().set_optimizer_step_count(
      save_->header.optimizer_step_count);
  state_->set_restart_step_count(save_->header.restart_step_count);
  return absl::OkStatus();
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

absl::Status IslandRunner::Pull(const Action& action) {
  server::CallBounds bounds;
  bounds.idle_max = kTransferIdleMax;
  bounds.stop = mailbox_.BeginTransfer([&](const v1::IslandPlan& plan) {
    return !IsFreshEnough(spec_.schedule(), action.version,
                          CutVersion(plan, action.fragment));
  });
  // Who leaves needs no parameters.
  const std::stop_callback leave(options_.stop,
                                 [this] { mailbox_.StopTransfer(); });
  const int64_t before = parameters_->counters().received_payload_bytes;
  const absl::Time begin = absl::Now();
  // The plan has the digest of theta; of a view the shards say it themselves.
  const server::TransferOutcome outcome =
      HasView(spec_)
          ? parameters_->PullView(action.fragment, action.version,
                                  action.from_version,
                                  state_->AnchorBuffer(action.fragment), bounds)
          : parameters_->Pull(action.fragment, action.version,
                              Digest128::FromProto(action.digest),
                              state_->FragmentBuffer(action.fragment), bounds);
  mailbox_.EndTransfer();
  meter_.Pulled(parameters_->counters().received_payload_bytes - before,
                absl::Now() - begin);
  RETURN_IF_ERROR(outcome.status);
  state_->SetAnchor(action.fragment);
  failpoint::Hit("island.pulled.after");
  return absl::OkStatus();
}

absl::Status IslandRunner::Train(const Action& action) {
  RETURN_IF_ERROR(
      reader_->Read(action.data_shard, action.data_position, batch_));
  const absl::Time begin = absl::Now();
  ASSIGN_OR_RETURN(const StepResult result,
                   state_->Train(batch_, action.step));
  const absl::Time end = absl::Now();
  meter_.Stepped(begin, end);
  step_speed_.Add(result.token_count, absl::ToDoubleSeconds(end - begin));
  failpoint::Hit("island.trained.after");
  progress_.tokens_per_second = step_speed_.tokens_per_second();
  progress_.step = action.step + 1;
  progress_.token_count += result.token_count;
  progress_.loss = result.loss;
  progress_.gradient_norm = result.gradient_norm;
  loss_sum_ += result.loss;
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

SaveHeader IslandRunner::DescribeSave(const Action& action) const {
  SaveHeader header;
  header.run_id = options_.run_id;
  header.run_epoch = action.run_epoch;
  header.slot = action.slot;
  header.seq = action.seq;
  header.step = progress_.step;
  header.data_shard = action.data_shard;
  header.data_position = action.data_position;
  header.restart_step_count = state_->restart_step_count();
  header.optimizer_step_count =
      state_->trainer().optimizer_state().step_count;
  for (const AnchoredFragment& at : action.contributions) {
    if (at.fragment != 0) continue;
    const SaveSummary evaluator = loop_.EvaluatorOf(at.anchor_version + 1);
    header.evaluator_version = evaluator.evaluator_version;
    header.evaluator_index = evaluator.evaluator_index;
    header.evaluator_count = evaluator.evaluator_count;
  }
  return header;
}

absl::Status IslandRunner::Contribute(const Action& action) {
  // The contributions of the save before are decided: their room is free.
  Save save;
  if (save_.has_value()) save.contributions.swap(save_->contributions);
  save_.reset();
  save.contributions.resize(action.contributions.size());
  const absl::Time begin = absl::Now();
  int64_t byte_count = 0;
  save.header = DescribeSave(action);
  for (size_t i = 0; i < action.contributions.size(); ++i) {
    EncodedContribution& contribution = save.contributions[i];
    const AnchoredFragment& at = action.contributions[i];
    contribution.info = DescribeContribution(action, at);
    const absl::Span<float> gradient = encoder_->GradientRoom(contribution);
    state_->OuterGradient(at.fragment, gradient);
    RETURN_IF_ERROR(encoder_->Encode(contribution));
    byte_count += static_cast<int64_t>(gradient.size() * sizeof(float));
  }
  failpoint::Hit("island.save.before");
  const engine::OptimizerState optimizer = state_->trainer().optimizer_state();
  const std::vector<FeedbackView> feedback = encoder_->Feedback();
  RETURN_IF_ERROR(Annotate(
      WriteSave(*links_.file_system, SavePath(), save.header,
                {optimizer.first_moment, optimizer.second_moment,
                 save.contributions, feedback}),
      "cannot write the save; free some space in the work directory"));
  meter_.Contributed(byte_count, absl::Now() - begin);
  failpoint::Hit("island.save.after");
  LOG(INFO) << "contribution " << action.seq << ": " << action.step_count
            << " steps, training loss "
            << loss_sum_ / static_cast<double>(action.step_count) << ", "
            << static_cast<int64_t>(progress_.tokens_per_second)
            << " tokens/s";
  save_ = std::move(save);
  return absl::OkStatus();
}

absl::Status IslandRunner::Push(const Action& action) {
  if (!save_.has_value()) return absl::InternalError("there is no save");
  for (const EncodedContribution& contribution : save_->contributions) {
    const v1::ContributionInfo& info = contribution.info;
    if (info.key().fragment() != action.fragment ||
        info.key().seq() != action.seq) {
      continue;
    }
    failpoint::Hit("island.push.before");
    server::CallBounds bounds;
    bounds.idle_max = kTransferIdleMax;
    const bool stops_in_pause = !action.needed_again;
    if (action.needed_again) {
      LOG(WARNING) << "fragment " << action.fragment << ", contribution "
                   << action.seq << ": " << action.reason
                   << ": it is pushed again";
    }
    std::atomic<bool> decided{false};
    bounds.stop = mailbox_.BeginTransfer([&](const v1::IslandPlan& plan) {
      // Of an async run too old to count: it pulls the newest and goes on.
      decided =
          !IsFreshEnough(spec_.schedule(), info.anchor_version(),
                         CutVersion(plan, info.key().fragment()));
      return decided || plan.run_state() == v1::RUN_STATE_CANCELLED ||
             (stops_in_pause && plan.run_state() == v1::RUN_STATE_PAUSED);
    });
    std::optional<std::stop_callback<std::function<void()>>> leave;
    if (stops_forwarded_ > 0) {
      bounds.deadline = absl::Now() + kTransferIdleMax;
    } else {
      // Goes on, bounded, once the loop knows that it is to leave.
      leave.emplace(options_.stop, [this] { mailbox_.StopTransfer(); });
    }
    const int64_t before = parameters_->counters().sent_payload_bytes;
    const absl::Time begin = absl::Now();
    const server::TransferOutcome outcome =
        parameters_->Push(info, contribution.bytes, bounds);
    mailbox_.EndTransfer();
    meter_.Pushed(parameters_->counters().sent_payload_bytes - before,
                  absl::Now() - begin);
    // At level ISLAND the plan may know of the commit before the servers' answer
    // is here; that is what was waited for.
    if (!decided || !absl::IsCancelled(outcome.status)) {
      RETURN_IF_ERROR(outcome.status);
    }
    failpoint::Hit("island.pushed.after");
    return absl::OkStatus();
  }
  return absl::InternalError("the save has no such contribution");
}

// What is evaluated is theta: with a view it is not what anchors are.
absl::Status IslandRunner::PullForEvaluation() {
  if (!HasView(spec_)) {
    state_->SetLocalToAnchors();
    return absl::OkStatus();
  }
  for (const v1::FragmentVersion& at : loop_.plan().cut()) {
    server::CallBounds bounds;
    bounds.idle_max = kTransferIdleMax;
    bounds.stop = mailbox_.BeginTransfer([&at](const v1::IslandPlan& plan) {
      return CutVersion(plan, at.fragment()) > at.version() + 1;
    });
    const std::stop_callback leave(options_.stop,
                                   [this] { mailbox_.StopTransfer(); });
    const server::TransferOutcome outcome = parameters_->Pull(
        at.fragment(), at.version(), Digest128::FromProto(at.digest()),
        state_->FragmentBuffer(at.fragment()), bounds);
    mailbox_.EndTransfer();
    RETURN_IF_ERROR(
        Annotate(outcome.status, "cannot pull what is to be evaluated"));
    state_->SetLocal(at.fragment());
  }
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
  RETURN_IF_ERROR(PullForEvaluation());
  ASSIGN_OR_RETURN(const double loss,
                   state_->EvaluateLocal(*evaluation_batch_));
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
  progress_.slot = loop_.joined() ? loop_.plan().slot() : -1;
  progress_.version = std::max<int64_t>(0, CutVersion(loop_.plan(), 0));
  const server::TransferCounters counters = parameters_->counters();
  progress_.sent_bytes = counters.sent_payload_bytes;
  progress_.received_bytes = counters.received_payload_bytes;
  progress_.utilization = meter_.utilization();
  progress_.measured = meter_.measurements(progress_.tokens_per_second);
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
