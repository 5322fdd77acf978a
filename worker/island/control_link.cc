#include "worker/island/control_link.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failpoint/failpoint.h"
#include "base/features/features.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/cut_utf8.h"
#include "base/status/refusal.h"
#include "base/time/clock.h"
#include "base/time/proto_time.h"

namespace atl::worker {
namespace {

// Longest wait for a plan before the thread looks at other things.
constexpr absl::Duration kPlanWait = absl::Seconds(1);
// Between two heartbeats if the coordinator does not tell: an elastic island
// should soon know that the coordinator is away.
constexpr absl::Duration kHeartbeatDefault = absl::Seconds(2);
constexpr absl::Duration kHeartbeatMin = absl::Milliseconds(100);
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

// A heartbeat's error is of its report, which is not valid or came too soon
// after others. The coordinator is there.
bool IsOfReport(const absl::Status& status) {
  return absl::IsInvalidArgument(status) ||
         HasReason(status, "TOO_MANY_CALLS");
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

absl::Duration HeartbeatInterval(absl::Duration asked, absl::Duration lease,
                                 double draw) {
  if (asked <= absl::ZeroDuration()) asked = kHeartbeatDefault;
  // Bounded before it is multiplied.
  asked = std::min(std::max(asked, kHeartbeatMin), lease);
  return std::min(asked * (0.9 + 0.2 * draw), lease / 3);
}

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
      random_(options.seed),
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
        NoteFeatures(response->coordinator_features(),
                     position_.coordinator_epoch);
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
  absl::Time next_look = Now();
  while (!stop.stop_requested()) {
    absl::Time now = Now();
    const bool is_prompt = now >= next_look && IsReporting() && PromptDue();
    if (now >= next_heartbeat || is_prompt) {
      const auto [answer, has_report] = BeatOnce();
      const absl::Duration latency = Now() - now;
      now += latency;
      MutexLock lock(&mutex_);
      const double draw = std::generate_canonical<double, 53>(random_);
      if (answer.ok()) {
        heartbeat_latency_.Add(latency);
        const absl::Duration lease = FromProto(answer->lease_duration());
        if (lease > absl::ZeroDuration()) lease_ = lease;
        last_contact_ = now;
        next_heartbeat =
            now + HeartbeatInterval(FromProto(answer->next_interval()), lease_,
                                    draw);
      } else if (has_report && absl::IsInvalidArgument(answer.status())) {
        // The report is dropped, and the lease is renewed.
        next_heartbeat =
            now + HeartbeatInterval(absl::ZeroDuration(), lease_, /*draw=*/1);
      } else {
        const absl::Duration wait = rpc::DelayAsked(
            std::min(kAwayWait, lease_ / 3), answer.status());
        next_heartbeat = now + wait * (1 + 0.25 * draw);
      }
      if (is_reporting()) {
        next_look = answer.ok() ? now + options_.report_interval
                                : next_heartbeat;
      }
      if (rejoin_) return false;
      // A heartbeat does not say what this island has seen of the log. So only
      // the plan's stream proves that another process is the island.
      const bool answered = answer.ok() || absl::IsAborted(answer.status()) ||
                            (has_report && IsOfReport(answer.status()));
      if (answered || CannotTakeUs(answer.status())) last_contact_ = now;
      if (now - last_contact_ > options_.patience) {
        mailbox_.PutRefused(
            Annotate(answer.status(), "the coordinator is away for too long"));
        return true;
      }
      if (connected_ != answered) {
        connected_ = answered;
        mailbox_.PutConnection(answered);
        if (answered) {
          LOG(INFO) << "the coordinator is back";
        } else {
          LOG(WARNING) << "the coordinator is away; it is asked again "
                       << (CannotTakeUs(answer.status())
                               ? std::string("until it is back")
                               : absl::StrCat("for ",
                                              absl::FormatDuration(
                                                  options_.patience),
                                              " at most"))
                       << ": " << answer.status().message();
        }
      }
    }
    if (now >= next_look) {
      const absl::Status reported =
          !IsReporting() && ReportDue() ? ReportOnce() : absl::OkStatus();
      next_look = Now() + rpc::DelayAsked(options_.report_interval, reported);
    }
    {
      MutexLock lock(&mutex_);
      if (rejoin_) return false;
    }
    const absl::Duration wait = std::min(next_heartbeat, next_look) - Now();
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
  if (progress_.hindrance() != progress.hindrance()) is_prompt_ = true;
  progress_.set_hindrance(progress.hindrance());
  progress_.set_index_digest(progress.index_digest());
  progress_changed_ = true;
}

void ControlLink::AddLoss(double loss) {
  // The coordinator takes no other ones. A trainer's own loss may be negative.
  if (!std::isfinite(loss) || loss < 0) return;
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
  is_prompt_ = true;
}

void ControlLink::AddUnpushed(const std::vector<v1::UnpushedWork>& work) {
  if (work.empty()) return;
  MutexLock lock(&mutex_);
  progress_.mutable_unpushed()->Add(work.begin(), work.end());
  progress_changed_ = true;
}

std::vector<v1::UnpushedWork> ControlLink::ListUnpushed() const {
  MutexLock lock(&mutex_);
  return {progress_.unpushed().begin(), progress_.unpushed().end()};
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
  is_prompt_ = true;
}

void ControlLink::SetPhase(v1::IslandPhase phase, absl::string_view reason) {
  MutexLock lock(&mutex_);
  phase_ = phase;
  phase_reason_ = std::string(CutUtf8(reason, kReasonBytesMax));
}

void ControlLink::TellLastPhase(v1::IslandPhase phase,
                                absl::string_view reason) {
  SetPhase(phase, reason);
  BeatOnce().answer.status().IgnoreError();
}

void ControlLink::SetAcknowledged(int64_t seq) {
  MutexLock lock(&mutex_);
  acknowledged_seq_ = seq;
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

bool ControlLink::PromptDue() {
  const bool is_silent = Silence() > absl::ZeroDuration();
  MutexLock lock(&mutex_);
  return is_prompt_ || is_silent != silence_reported_;
}

ControlLink::Report ControlLink::TakeReport() {
  Report report;
  v1::ReportProgressRequest& message = report.message;
  std::vector<v1::SyncPhases>& phases = report.phases;
  {
    MutexLock lock(&mutex_);
    message = progress_;
    if (message.unpushed_size() > kReportedUnpushedMax) {
      message.mutable_unpushed()->DeleteSubrange(
          kReportedUnpushedMax,
          message.unpushed_size() - kReportedUnpushedMax);
    }
    report.loss_sum = loss_sum_;
    while (!phases_.empty() && phases.size() < kReportedPhasesMax) {
      phases.push_back(std::move(phases_.front()));
      phases_.pop_front();
    }
    report.metrics.AddAll(metrics_.means(), metrics_.token_count());
    metrics_.Clear();
    progress_changed_ = is_prompt_ = !phases_.empty();
  }
  for (const auto& [name, mean] : report.metrics.means()) {
    (*message.mutable_metrics())[name] = mean;
  }
  message.set_metrics_token_count(report.metrics.token_count());
  message.set_trainer_silence_seconds(absl::ToDoubleSeconds(Silence()));
  std::stable_sort(phases.begin(), phases.end(),
                   [](const v1::SyncPhases& a, const v1::SyncPhases& b) {
                     return a.seq() < b.seq();
                   });
  message.mutable_sync_phases()->Add(phases.begin(), phases.end());
  if (message.loss_step_count() > 0) {
    message.set_loss(report.loss_sum /
                     static_cast<double>(message.loss_step_count()));
  }
  return report;
}

void ControlLink::SettleReport(const Report& report,
                               const absl::Status& status) {
  // A report that is not valid would not be valid the next time.
  const bool is_refused = absl::IsInvalidArgument(status);
  if (is_refused && refused_pace_.IsDue(status.message(), Now())) {
    LOG(WARNING) << "the coordinator refuses a report of progress, which is "
                    "dropped: "
                 << status.message();
  }
  MutexLock lock(&mutex_);
  if (!status.ok() && !is_refused) {
    progress_changed_ = is_prompt_ = true;
    metrics_.AddAll(report.metrics.means(), report.metrics.token_count());
    phases_.insert(phases_.begin(), report.phases.begin(),
                   report.phases.end());
    DropOldPhases();
    return;
  }
  silence_reported_ = report.message.trainer_silence_seconds() > 0;
  // Subtracts the reported part. Values that came meanwhile stay.
  loss_sum_ -= report.loss_sum;
  progress_.set_loss_step_count(progress_.loss_step_count() -
                                report.message.loss_step_count());
  if (progress_.loss_step_count() == 0) loss_sum_ = 0;
  progress_.mutable_evaluations()->DeleteSubrange(
      0, report.message.evaluations_size());
  progress_.mutable_unpushed()->DeleteSubrange(
      0, report.message.unpushed_size());
  if (progress_.unpushed_size() > 0) progress_changed_ = true;
}

absl::Status ControlLink::ReportOnce() {
  MutexLock report_lock(&report_mutex_);
  const Report report = TakeReport();
  const absl::Status status = client_.ReportProgress(report.message);
  SettleReport(report, status);
  return status;
}

void ControlLink::NoteFeatures(uint64_t features, int64_t epoch) {
  reporting_epoch_.reset();
  if ((features & kReportingHeartbeat) != 0) reporting_epoch_ = epoch;
}

// A plan of a later epoch comes from a coordinator that may be an older
// program.
bool ControlLink::is_reporting() const {
  return reporting_epoch_.has_value() &&
         *reporting_epoch_ >= position_.coordinator_epoch;
}

bool ControlLink::IsReporting() const {
  MutexLock lock(&mutex_);
  return is_reporting();
}

absl::StatusOr<v1::HeartbeatResponse> ControlLink::CallHeartbeat(
    const v1::HeartbeatRequest& request) {
  auto answer = Ask([&] { return client_.Heartbeat(request); });
  if (answer.ok()) {
    MutexLock lock(&mutex_);
    NoteFeatures(answer->coordinator_features(), answer->coordinator_epoch());
  }
  return answer;
}

ControlLink::Beat ControlLink::BeatOnce() {
  v1::HeartbeatRequest request;
  if (!IsReporting()) return {CallHeartbeat(request)};
  const absl::Duration silence = Silence();
  {
    MutexLock lock(&mutex_);
    request.set_plan_revision(position_.revision);
    request.set_acknowledged_seq(acknowledged_seq_);
    request.set_phase(phase_);
    request.set_phase_reason(phase_reason_);
  }
  if (silence > absl::ZeroDuration()) {
    request.set_phase(v1::ISLAND_PHASE_NO_TRAINER);
    request.set_phase_reason(
        absl::StrCat("its trainer has said nothing for ",
                     absl::ToInt64Seconds(silence), " s"));
  }
  // A report of Flush() that waits for its answer must not cost the lease.
  if (!ReportDue() || !report_mutex_.TryLock()) {
    return {CallHeartbeat(request)};
  }
  const Report report = TakeReport();
  *request.mutable_progress() = report.message;
  Beat beat = {CallHeartbeat(request), /*has_report=*/true};
  absl::Status taken = beat.answer.status();
  if (taken.ok() && (beat.answer->coordinator_features() &
                     kReportingHeartbeat) == 0) {
    taken = absl::UnavailableError("an older coordinator has not read it");
  }
  SettleReport(report, taken);
  report_mutex_.Unlock();
  return beat;
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
