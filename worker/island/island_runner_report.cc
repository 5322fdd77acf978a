#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/obs/log.h"
#include "base/status/cut_utf8.h"
#include "worker/core/island_phase.h"
#include "worker/island/island_runner.h"

// The reports of an island: its log, its progress and its metrics.

namespace atl::worker {
namespace {

// The longest ReportProgressRequest.hindrance.
constexpr size_t kHindranceBytesMax = 256;
// When a wait asks the coordinator why the run waits, and again.
constexpr absl::Duration kReasonAfter = absl::Seconds(5);
constexpr absl::Duration kReasonEvery = absl::Seconds(30);

}  // namespace

// Counts the contributions that were decided; logs those that are not merged,
// with the share that was, and tells the trainer of them.
void IslandRunner::TellOutcomes() {
  for (const v1::ContributionOutcome& outcome : loop_.plan().outcomes()) {
    const v1::ContributionKey& key = outcome.key();
    if (!contributions_.Decided(outcome) ||
        outcome.outcome() == v1::OUTCOME_MERGED) {
      continue;
    }
    const ContributionTally& tally = contributions_.tally();
    const std::string line = absl::StrCat(
        "contribution ", key.seq(), " of fragment ", key.fragment(),
        " is not merged: ",
        absl::StripPrefix(v1::Outcome_Name(outcome.outcome()), "OUTCOME_"),
        outcome.reason().empty() ? "" : ", ", outcome.reason(),
        "; merged so far: ", tally.merged_count, " of ", tally.count());
    LOG(WARNING) << line;
    // The run's end is told anyway.
    if (outcome.outcome() != v1::OUTCOME_CANCELLED) part_->Notify(line);
  }
}

// Logs servers that become unreachable or come back.
void IslandRunner::TellServers(const v1::IslandPlan& plan) {
  MutexLock lock(&mutex_);
  for (const v1::ShardPlacement& shard : plan.shards()) {
    const bool away = shard.address().empty() && !shard.server_id().empty();
    bool& was_away = servers_away_[shard.server_id()];
    if (away == was_away) continue;
    was_away = away;
    if (away) {
      LOG(WARNING) << "server " << shard.server_id()
                   << " is away; its shards wait until it is back";
    } else {
      LOG(INFO) << "server " << shard.server_id() << " is back at "
                << shard.address();
    }
  }
}

void IslandRunner::Log(const Action& action) {
  switch (action.kind) {
    // Too frequent for the log.
    case ActionKind::kBeginRound:
    case ActionKind::kTrain:
    case ActionKind::kContribute:
    case ActionKind::kSave:
    case ActionKind::kPush:
    case ActionKind::kPull:
    case ActionKind::kApply:
      return;
    default:
      break;
  }
  const std::string what = absl::StrCat(ActionName(action.kind), ": ");
  std::string line = absl::StrCat(what, Subject(action));
  if (line == logged_) return;
  LOG(INFO) << what << action.reason;
  logged_ = std::move(line);
}

// A wait that lasts is logged again, since Log() skips equal lines: a trainer
// quotes what its exchange has logged since the wait began. A plan does not say
// why no round is open for an island; the run does.
void IslandRunner::TellWait(const Action& action, absl::Time now) {
  if (!reason_time_.has_value()) reason_time_ = now + kReasonAfter;
  if (now < *reason_time_) return;
  reason_time_ = now + kReasonEvery;
  bool is_ready = false;
  {
    MutexLock lock(&mutex_);
    if (loop_.joined() && !loop_.connected()) {
      LOG(INFO) << "the coordinator is away";
      return;
    }
    is_ready = loop_.ready();
  }
  const absl::StatusOr<v1::Run> run =
      is_ready ? links_.get_run() : absl::UnavailableError("not needed");
  if (run.ok() && !run->state_reason().empty()) {
    LOG(INFO) << "the run: " << run->state_reason();
  } else {
    LOG(INFO) << "wait: " << action.reason;
  }
}

std::string IslandRunner::Subject(const Action& action) {
  return action.kind == ActionKind::kWait
             ? action.reason.substr(0, action.reason.find(':'))
             : action.reason;
}

void IslandRunner::SendPhases(bool is_end) {
  std::vector<v1::SyncPhases> ended;
  {
    MutexLock lock(&mutex_);
    if (is_end) phases_.EndAll();
    ended = phases_.TakeEnded();
  }
  if (metrics_.has_value()) {
    for (const v1::SyncPhases& sync : ended) metrics_->Add(sync);
  }
  link_->AddPhases(std::move(ended));
}

void IslandRunner::SendUnpushed(bool leaves) {
  std::vector<v1::UnpushedWork> unpushed;
  {
    MutexLock lock(&mutex_);
    if (leaves) loop_.OnLeaving();
    unpushed = loop_.TakeUnpushed();
  }
  for (const v1::UnpushedWork& work : unpushed) {
    // A contribution that was made has an outcome, or is pushed again.
    if (leaves || work.seq() != 0 || work.step_count() == 0) continue;
    part_->Notify(absl::StrCat(
        work.step_count(), " steps since version ", work.version(),
        " of fragment ", work.fragment(),
        " do not count: they were not finite, or their round ended or the run "
        "was restored before a push"));
  }
  link_->AddUnpushed(unpushed);
}

void IslandRunner::UpdateMetrics(const Action& action) {
  metrics_->Update(progress_);
  bool ready = false;
  {
    MutexLock lock(&mutex_);
    ready = loop_.ready();
  }
  options_.metrics->SetReady(
      ready ? absl::OkStatus()
            : absl::UnavailableError(absl::StrCat(ActionName(action.kind), ": ",
                                                  action.reason)));
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
    progress_.computing = meter_.computing();
    progress_.training_begin_time = meter_.begin_time();
    progress_.training_end_time = meter_.end_time();
    progress_.pauses = meter_.pauses();
    progress_.contributions = contributions_.tally();
    progress_.measured = meter_.measurements(progress_.tokens_per_second);
  }
  const server::TransferCounters counters = part_->counters();
  progress_.sent_bytes = counters.sent_payload_bytes;
  progress_.received_bytes = counters.received_payload_bytes;
  {
    MutexLock lock(&mutex_);
    progress_.sent_bytes += others_sent_bytes_;
    progress_.received_bytes += others_received_bytes_;
    progress_.saved_bytes = saved_bytes_;
  }
  progress_.measured.round_trip_seconds =
      absl::ToDoubleSeconds(link_->heartbeat_latency().Quantile(0.5));
  if (!progress_.forecast.has_value()) {
    // Keeps the first forecast, to compare it with later measurements.
    const absl::StatusOr<planner::Forecast> forecast =
        ForecastOfRun(spec_, progress_.measured);
    if (forecast.ok()) progress_.forecast = *forecast;
    auto recipes =
        ForecastOfRecipes(spec_, progress_.measured, options_.recipes);
    if (recipes.ok()) progress_.recipes = *std::move(recipes);
  }
  Log(action);
  SendPhases(action.kind == ActionKind::kLeave ||
             action.kind == ActionKind::kFinish);
  SendUnpushed(action.kind == ActionKind::kLeave ||
               (action.kind == ActionKind::kFinish && action.status.ok()));
  if (metrics_.has_value()) UpdateMetrics(action);
  v1::ReportProgressRequest report;
  report.set_step(progress_.step);
  report.set_token_count(progress_.token_count);
  report.set_tokens_per_second(progress_.tokens_per_second);
  report.set_gradient_norm(progress_.gradient_norm);
  report.set_sent_bytes(progress_.sent_bytes);
  report.set_received_bytes(progress_.received_bytes);
  // A try that fails again does not end the hindrance; a step does.
  if (action.kind == ActionKind::kWait) hindrance_ = action.hindrance;
  report.set_index_digest(index_digest_);
  report.set_hindrance(std::string(CutUtf8(hindrance_, kHindranceBytesMax)));
  link_->SetProgress(report);
  PhaseFacts facts;
  {
    MutexLock lock(&mutex_);
    facts = {.on_hold = loop_.on_hold(),
             .awaits_data = loop_.awaits_data(),
             .pushes = loop_.IsBusy(Lane::kPush),
             .pulls = loop_.IsBusy(Lane::kPull)};
  }
  link_->SetPhase(FindPhase(action, facts), PhaseReason(action));
  if (options_.on_progress) options_.on_progress(progress_);
}

}  // namespace atl::worker
