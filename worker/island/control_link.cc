#include "worker/island/control_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failpoint/failpoint.h"
#include "base/obs/log.h"
#include "base/obs/log_pace.h"
#include "base/status/annotate.h"
#include "base/status/refusal.h"
#include "base/time/clock.h"
#include "base/time/proto_time.h"
#include "coordinator/client/plan_position.h"

namespace atl::worker {
namespace {

// Longest wait for a plan before the thread looks at other things.
constexpr absl::Duration kPlanWait = absl::Seconds(1);
// Longest wait between two heartbeats: an elastic island should soon know that
// the coordinator is away.
constexpr absl::Duration kHeartbeatMax = absl::Seconds(2);
// Between two looks at a coordinator that does not answer.
constexpr absl::Duration kAwayWait = absl::Milliseconds(500);

// Not the machine's clock: setting that would delay a heartbeat.
absl::Time Now() { return SystemClock().Now(); }

// True if the coordinator is there, but cannot take this island now. An island
// waits for that without an end.
bool CannotTakeUs(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || IsLogFault(status) ||
         IsOtherCluster(status);
}

// Returns true if only a new Join helps. Its answer says more, because the
// coordinator first compares its log with the island's. A coordinator that
// refuses because of its log may still have the membership.
bool MustJoinAgain(const absl::Status& status) {
  return absl::IsNotFound(status) ||
         (absl::IsFailedPrecondition(status) && !IsLogFault(status));
}

// A join that asking again does not help.
bool JoinIsRefused(const absl::Status& status) {
  if (CannotTakeUs(status)) return false;
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
      return false;
    default:
      return true;
  }
}

const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& answer) {
  return answer.status();
}

}  // namespace

template <typename Call>
auto ControlLink::Ask(Call call) -> decltype(call()) {
  int64_t asked = 0;
  {
    MutexLock lock(&mutex_);
    asked = join_count_;
  }
  auto answer = call();
  const absl::Status& status = StatusOf(answer);
  MutexLock lock(&mutex_);
  if (!member_ || asked != join_count_) {
    return absl::DeadlineExceededError(
        "asked before this island joined the last time");
  }
  if (MustJoinAgain(status)) {
    rejoin_ = true;
    changed_.SignalAll();
  }
  return answer;
}

ControlLink::ControlLink(const ControlLinkOptions& options,
                         coordinator::IslandControlClient& client,
                         Mailbox& mailbox, Listener listener)
    : options_(options),
      client_(client),
      mailbox_(mailbox),
      listener_(std::move(listener)),
      last_contact_(Now()),
      control_thread_([this](std::stop_token stop) { RunControl(stop); }),
      plan_thread_([this](std::stop_token stop) { RunPlans(stop); }) {}

ControlLink::~ControlLink() {
  control_thread_.request_stop();
  plan_thread_.request_stop();
  MutexLock lock(&mutex_);
  stopping_ = true;
  changed_.SignalAll();
}

void ControlLink::RunControl(std::stop_token stop) {
  while (!stop.stop_requested()) {
    if (!JoinUntilDone(stop)) return;
    if (KeepMembership(stop)) return;
    LOG(WARNING) << "the membership has ended; joining again";
  }
}

bool ControlLink::JoinUntilDone(std::stop_token stop) {
  rpc::Backoff backoff(options_.retry, options_.seed);
  LogPace pace;
  bool before = false;
  {
    MutexLock lock(&mutex_);
    before = was_member_;
    member_ = false;
    rejoin_ = false;
  }
  const absl::Duration patience =
      before ? options_.patience : options_.join_patience;
  absl::Time last_answer = Now();
  while (!stop.stop_requested()) {
    absl::StatusOr<v1::JoinResponse> response = client_.Join(options_.join);
    if (response.ok()) {
      failpoint::Hit("island.joined.after");
      MutexLock listener_lock(&listener_mutex_);
      const absl::Status taken = listener_.on_joined(*response);
      if (!taken.ok()) {
        mailbox_.PutRefused(Annotate(taken, "cannot take part in the run"));
        return false;
      }
      const google::protobuf::Duration lease = response->lease_duration();
      {
        MutexLock lock(&mutex_);
        position_ = coordinator::ToPosition(response->plan());
        mailbox_.PutJoined(*std::move(response));
        was_member_ = true;
        member_ = true;
        connected_ = true;
        last_contact_ = Now();
        ++join_count_;
        lease_ = FromProto(lease);
        if (lease_ <= absl::ZeroDuration()) lease_ = absl::Seconds(30);
        changed_.SignalAll();
      }
      return true;
    }
    if (JoinIsRefused(response.status())) {
      mailbox_.PutRefused(Annotate(response.status(), "cannot join the run"));
      return false;
    }
    const absl::Time now = Now();
    const bool waits = CannotTakeUs(response.status());
    if (waits) last_answer = now;
    if (now - last_answer > patience) {
      mailbox_.PutRefused(Annotate(response.status(), "cannot join the run"));
      return false;
    }
    if (pace.IsDue(response.status().message(), now)) {
      LOG(WARNING) << "cannot join yet; asks again "
                   << (waits ? std::string("until the coordinator can take it")
                             : absl::StrCat("for ",
                                            absl::FormatDuration(patience),
                                            " at most"))
                   << ": " << response.status().message();
    }
    // An unreachable coordinator needs no reason: that passes by itself.
    SetAway(waits ? response.status().message() : "");
    if (!Sleep(backoff.Next(response.status()), stop)) return false;
  }
  return false;
}

LatencyHistogram ControlLink::heartbeat_latency() const {
  MutexLock lock(&mutex_);
  return heartbeat_latency_;
}

bool ControlLink::KeepMembership(std::stop_token stop) {
  absl::Time next_heartbeat = Now();
  absl::Time next_report = Now();
  while (!stop.stop_requested()) {
    absl::Time now = Now();
    if (now >= next_heartbeat) {
      const absl::StatusOr<absl::Duration> lease =
          Ask([this] { return client_.Heartbeat(); });
      const absl::Duration latency = Now() - now;
      now += latency;
      MutexLock lock(&mutex_);
      if (lease.ok()) {
        heartbeat_latency_.Add(latency);
        if (*lease > absl::ZeroDuration()) lease_ = *lease;
        last_contact_ = now;
        next_heartbeat = now + std::min(kHeartbeatMax, lease_ / 3);
      } else {
        next_heartbeat = now + rpc::DelayAsked(std::min(kAwayWait, lease_ / 3),
                                               lease.status());
      }
      if (rejoin_) return false;
      // A heartbeat does not say what this island has seen of the log. So only
      // the plan's stream proves that another process is the island.
      const bool answered =
          lease.ok() || absl::IsAborted(lease.status());
      if (answered || CannotTakeUs(lease.status())) last_contact_ = now;
      if (now - last_contact_ > options_.patience) {
        mailbox_.PutRefused(
            Annotate(lease.status(), "the coordinator is away for too long"));
        return true;
      }
      if (connected_ != answered) {
        connected_ = answered;
        mailbox_.PutConnection(answered);
        if (answered) {
          LOG(INFO) << "the coordinator is back";
        } else {
          LOG(WARNING) << "the coordinator is away; it is asked again "
                       << (CannotTakeUs(lease.status())
                               ? std::string("until it is back")
                               : absl::StrCat("for ",
                                              absl::FormatDuration(
                                                  options_.patience),
                                              " at most"))
                       << ": " << lease.status().message();
        }
      }
    }
    if (now >= next_report) {
      const absl::Status reported =
          ReportDue() ? ReportOnce() : absl::OkStatus();
      next_report =
          Now() + rpc::DelayAsked(options_.report_interval, reported);
    }
    {
      MutexLock lock(&mutex_);
      if (rejoin_) return false;
    }
    const absl::Duration wait = std::min(next_heartbeat, next_report) - Now();
    if (!Sleep(std::max(wait, absl::Milliseconds(1)), stop)) return true;
  }
  return true;
}

void ControlLink::RunPlans(std::stop_token stop) {
  while (!stop.stop_requested()) {
    int64_t join_count = 0;
    coordinator::PlanPosition position;
    {
      MutexLock lock(&mutex_);
      if (!member_ || rejoin_) {
        if (!stopping_) changed_.WaitWithTimeout(&mutex_, kPlanWait);
        continue;
      }
      join_count = join_count_;
      position = position_;
    }
    absl::StatusOr<v1::IslandPlan> plan = Ask([&] {
      return client_.WaitForPlan(position, kPlanWait, stop);
    });
    if (plan.ok()) {
      MutexLock listener_lock(&listener_mutex_);
      {
        // A plan that arrives during a new Join may belong to the new
        // membership, and would look like another process's.
        MutexLock lock(&mutex_);
        if (!member_ || join_count != join_count_) continue;
      }
      const absl::Status taken = listener_.on_plan(*plan);
      if (!taken.ok()) {
        mailbox_.PutRefused(Annotate(taken, "cannot follow the run"));
        return;
      }
      MutexLock lock(&mutex_);
      position_ = coordinator::ToPosition(*plan);
      mailbox_.PutPlan(*std::move(plan));
      continue;
    }
    if (absl::IsDeadlineExceeded(plan.status())) continue;
    if (absl::IsCancelled(plan.status())) return;
    if (absl::IsAborted(plan.status())) {
      mailbox_.PutRefused(
          Annotate(plan.status(), "another process joined as this island"));
      return;
    }
    // The run has ended, or the coordinator is away: heartbeats find out.
    Sleep(kAwayWait, stop);
  }
}

absl::Status ControlLink::ReportReady(int64_t commit_seq) {
  return Ask([&] { return client_.ReportReady(commit_seq); });
}

void ControlLink::SetProgress(const v1::ReportProgressRequest& progress) {
  MutexLock lock(&mutex_);
  progress_.set_step(progress.step());
  progress_.set_token_count(progress.token_count());
  progress_.set_tokens_per_second(progress.tokens_per_second());
  progress_.set_gradient_norm(progress.gradient_norm());
  progress_.set_sent_bytes(progress.sent_bytes());
  progress_.set_received_bytes(progress.received_bytes());
  progress_.set_hindrance(progress.hindrance());
  progress_.set_index_digest(progress.index_digest());
  progress_changed_ = true;
}

void ControlLink::AddLoss(double loss) {
  MutexLock lock(&mutex_);
  loss_sum_ += loss;
  progress_.set_loss_step_count(progress_.loss_step_count() + 1);
}

void ControlLink::AddMetrics(const std::map<std::string, double>& metrics,
                             int64_t token_count) {
  MutexLock lock(&mutex_);
  metrics_.AddAll(metrics, token_count);
}

void ControlLink::AddEvaluation(const v1::Evaluation& evaluation) {
  MutexLock lock(&mutex_);
  *progress_.add_evaluations() = evaluation;
  progress_changed_ = true;
}

void ControlLink::AddUnpushed(const std::vector<v1::UnpushedWork>& work) {
  if (work.empty()) return;
  MutexLock lock(&mutex_);
  progress_.mutable_unpushed()->Add(work.begin(), work.end());
  progress_changed_ = true;
}

void ControlLink::ForgetSteps() {
  MutexLock report_lock(&report_mutex_);
  MutexLock lock(&mutex_);
  loss_sum_ = 0;
  progress_.set_loss_step_count(0);
  progress_.clear_evaluations();
  metrics_.Clear();
}

void ControlLink::AddPhases(std::vector<v1::SyncPhases> ended) {
  if (ended.empty()) return;
  MutexLock lock(&mutex_);
  for (v1::SyncPhases& sync : ended) phases_.push_back(std::move(sync));
  DropOldPhases();
  progress_changed_ = true;
}

void ControlLink::DropOldPhases() {
  while (phases_.size() > kPhasesMax) phases_.pop_front();
}

absl::Duration ControlLink::Silence() const {
  if (!options_.trainer_silence) return absl::ZeroDuration();
  const absl::Duration silence = options_.trainer_silence();
  return silence < kSilenceMin ? absl::ZeroDuration() : silence;
}

bool ControlLink::ReportDue() {
  const bool is_silent = Silence() > absl::ZeroDuration();
  MutexLock lock(&mutex_);
  return progress_changed_ || is_silent || silence_reported_;
}

absl::Status ControlLink::ReportOnce() {
  MutexLock report_lock(&report_mutex_);
  v1::ReportProgressRequest report;
  double loss_sum = 0;
  std::vector<v1::SyncPhases> phases;
  WeightedMeans metrics;
  {
    MutexLock lock(&mutex_);
    report = progress_;
    if (report.unpushed_size() > kReportedUnpushedMax) {
      report.mutable_unpushed()->DeleteSubrange(
          kReportedUnpushedMax, report.unpushed_size() - kReportedUnpushedMax);
    }
    loss_sum = loss_sum_;
    while (!phases_.empty() && phases.size() < kReportedPhasesMax) {
      phases.push_back(std::move(phases_.front()));
      phases_.pop_front();
    }
    metrics.AddAll(metrics_.means(), metrics_.token_count());
    metrics_.Clear();
    progress_changed_ = !phases_.empty();
  }
  for (const auto& [name, mean] : metrics.means()) {
    (*report.mutable_metrics())[name] = mean;
  }
  report.set_metrics_token_count(metrics.token_count());
  report.set_trainer_silence_seconds(absl::ToDoubleSeconds(Silence()));
  std::stable_sort(phases.begin(), phases.end(),
                   [](const v1::SyncPhases& a, const v1::SyncPhases& b) {
                     return a.seq() < b.seq();
                   });
  report.mutable_sync_phases()->Add(phases.begin(), phases.end());
  if (report.loss_step_count() > 0) {
    report.set_loss(loss_sum / static_cast<double>(report.loss_step_count()));
  }
  const absl::Status status = client_.ReportProgress(report);
  MutexLock lock(&mutex_);
  if (!status.ok() && !absl::IsInvalidArgument(status)) {
    progress_changed_ = true;
    metrics_.AddAll(metrics.means(), metrics.token_count());
    phases_.insert(phases_.begin(), phases.begin(), phases.end());
    DropOldPhases();
    return status;
  }
  silence_reported_ = report.trainer_silence_seconds() > 0;
  // Subtracts the reported part. Values that came meanwhile stay.
  loss_sum_ -= loss_sum;
  progress_.set_loss_step_count(progress_.loss_step_count() -
                                report.loss_step_count());
  if (progress_.loss_step_count() == 0) loss_sum_ = 0;
  progress_.mutable_evaluations()->DeleteSubrange(0, report.evaluations_size());
  progress_.mutable_unpushed()->DeleteSubrange(0, report.unpushed_size());
  if (progress_.unpushed_size() > 0) progress_changed_ = true;
  return status;
}

void ControlLink::Flush(absl::Duration timeout) {
  const absl::Time deadline = Now() + timeout;
  rpc::Backoff backoff(options_.retry, options_.seed);
  while (ReportDue()) {
    const absl::Status status = ReportOnce();
    if (Now() >= deadline) return;
    if (status.ok()) continue;  // A report has only part of the phases.
    if (!IsAway(status)) return;
    if (!Sleep(backoff.Next(status), std::stop_token())) return;
  }
}

absl::Status ControlLink::Leave(const v1::LeaveRequest& leave) {
  failpoint::Hit("island.leave.before");
  // No thread may take the membership's end for a lost lease and join again.
  control_thread_.request_stop();
  plan_thread_.request_stop();
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  return client_.Leave(leave);
}

bool ControlLink::Sleep(absl::Duration duration, std::stop_token stop) {
  const absl::Time deadline = Now() + duration;
  MutexLock lock(&mutex_);
  while (!stopping_ && !stop.stop_requested() && !rejoin_ && Now() < deadline) {
    changed_.WaitWithTimeout(&mutex_, deadline - Now());
  }
  return !stopping_ && !stop.stop_requested();
}

void ControlLink::SetAway(absl::string_view why) {
  MutexLock lock(&mutex_);
  if (!connected_ && away_reason_ == why) return;
  connected_ = false;
  away_reason_ = std::string(why);
  mailbox_.PutConnection(false, away_reason_);
}

}  // namespace atl::worker
