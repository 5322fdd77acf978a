#include "cli/volunteer/volunteer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/obs/log.h"
#include "base/rpc/retry.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "cli/output/error.h"

namespace atl::cli {
namespace {

constexpr char kPausedByUser[] = "atoll local pause";
constexpr absl::Duration kSavePeriod = absl::Seconds(10);
// The wait between two attempts of an enrolled island that reaches no peer.
constexpr absl::Duration kRetryMin = absl::Seconds(5);
constexpr absl::Duration kRetryMax = absl::Minutes(1);
// Longer pauses have no end.
constexpr absl::Duration kPauseMax = absl::Hours(24 * 366);
constexpr char kPausedBeforeJoin[] = "PAUSED_BEFORE_JOIN";

// "outside of --hours 22:00-07:00, until 22:00".
std::string Describe(const Decision& decision, absl::TimeZone zone,
                     absl::Time now) {
  if (decision.may_train) return "";
  if (decision.until == absl::InfiniteFuture()) return decision.reason;
  const bool is_soon = decision.until - now < absl::Hours(24);
  return absl::StrCat(decision.reason, ", until ",
                      absl::FormatTime(is_soon ? "%H:%M" : "%Y-%m-%d %H:%M",
                                       decision.until, zone));
}

// How long a strict round waits for an island that does nothing.
absl::Duration LeaseOf(const v1::RunSpec& spec) {
  const absl::Duration lease = FromProto(spec.schedule().lease_duration());
  return lease > absl::ZeroDuration() ? lease : absl::Seconds(30);
}

absl::Status RefusePause() {
  return WithHint(
      WithReason(absl::FailedPreconditionError(
                     "this run is strict: each round waits for all islands, "
                     "and an island of several processes cannot leave it for a "
                     "pause"),
                 "STRICT_RUN"),
      "`atoll local finish` ends it after its round.");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Volunteer>> Volunteer::Create(
    VolunteerOptions options) {
  ASSIGN_OR_RETURN(TransferAccount account,
                   TransferAccount::Open(options.directory, options.zone));
  return std::unique_ptr<Volunteer>(
      new Volunteer(std::move(options), std::move(account)));
}

absl::StatusOr<worker::IslandProgress> Volunteer::Run(
    worker::RunIslandOptions island, const Attempt& attempt) {
  island.control = &control_;
  island.check_run = [this, before = island.check_run](
                         const v1::RunSpec& spec) -> absl::Status {
    if (before) RETURN_IF_ERROR(before(spec));
    return CheckRun(spec);
  };
  island.on_progress =
      [this, before = island.on_progress](const worker::IslandProgress& at) {
        Note(at);
        if (before) before(at);
      };
  const std::stop_callback wake(island.stop, [this] {
    MutexLock lock(&mutex_);
    changed_.SignalAll();
  });
  std::jthread watcher([this](const std::stop_token& stop) { Watch(stop); });
  absl::StatusOr<worker::IslandProgress> end = worker::IslandProgress();
  rpc::Backoff backoff({kRetryMin, kRetryMax}, rpc::RandomSeed());
  while (WaitUntilAllowed(island.stop)) {
    end = RunOnce(island, attempt);
    bool again = false;
    {
      MutexLock lock(&mutex_);
      if (in_run_) backoff.Reset();
      // Before the island has joined, a stop ends it with CANCELLED.
      const bool paused =
          leaves_to_pause_ &&
          (end.ok() || (absl::IsCancelled(end.status()) &&
                        GetReason(end.status()) != worker::kRunCancelled));
      leaves_to_pause_ = false;
      again = paused && !finishing_ && !island.stop.stop_requested();
      if (paused && !end.ok()) end = worker::IslandProgress();
    }
    if (again) continue;
    if (options_.retries && IsAway(end.status()) &&
        !worker::IsProcessLost(end.status()) && !island.stop.stop_requested()) {
      const absl::Duration wait = backoff.Next(end.status());
      if (WaitToRetry(end.status(), wait, island.stop)) continue;
      end = worker::IslandProgress();
    }
    break;
  }
  watcher = std::jthread();
  Look();
  MutexLock lock(&mutex_);
  // It was stopped before it joined.
  if (finishing_ && absl::IsCancelled(end.status()) &&
      GetReason(end.status()) != worker::kRunCancelled &&
      !island.stop.stop_requested()) {
    end = worker::IslandProgress();
  }
  if (end.ok()) AddTotals(*end);
  return end;
}

absl::StatusOr<worker::IslandProgress> Volunteer::RunOnce(
    const worker::RunIslandOptions& island, const Attempt& attempt) {
  worker::RunIslandOptions once = island;
  std::stop_source stop;
  const std::stop_callback forward(island.stop, [&] { stop.request_stop(); });
  once.stop = stop.get_token();
  {
    MutexLock lock(&mutex_);
    attempt_stop_ = stop;
    hold_begin_ = options_.now();
    in_run_ = false;
    if (finishing_) stop.request_stop();
  }
  absl::StatusOr<worker::IslandProgress> end = attempt(once);
  MutexLock lock(&mutex_);
  attempt_stop_ = std::stop_source(std::nostopstate);
  // The result has its own counters; until it is known, they are in `totals_`.
  if (!end.ok() || leaves_to_pause_) {
    worker::IslandProgress sum = at_;
    AddTotals(sum);
    totals_ = sum;
    at_ = worker::IslandProgress();
    if (end.ok()) {
      end->contributions = {};
      end->token_count = end->sent_bytes = end->received_bytes =
          end->saved_bytes = 0;
    }
  }
  return end;
}

void Volunteer::AddTotals(worker::IslandProgress& progress) const {
  progress.contributions.Add(totals_.contributions);
  progress.token_count += totals_.token_count;
  progress.sent_bytes += totals_.sent_bytes;
  progress.received_bytes += totals_.received_bytes;
  progress.saved_bytes += totals_.saved_bytes;
}

absl::Status Volunteer::CheckRun(const v1::RunSpec& spec) {
  const bool is_strict = spec.schedule().timing() == v1::TIMING_STRICT;
  RETURN_IF_ERROR(CheckLimitsFit(options_.limits, is_strict));
  MutexLock lock(&mutex_);
  run_is_known_ = true;
  in_run_ = true;
  is_strict_ = is_strict;
  lease_ = LeaseOf(spec);
  retry_reason_.clear();
  if (is_strict_ && !CanLeave() && paused_until_ != absl::InfinitePast()) {
    LOG(WARNING) << "the pause ends: " << RefusePause().message();
    paused_until_ = absl::InfinitePast();
  }
  if (decision_.may_train || !CanLeave()) return absl::OkStatus();
  leaves_to_pause_ = true;
  return WithReason(absl::CancelledError("paused before the join"),
                    kPausedBeforeJoin);
}

bool Volunteer::WaitUntilAllowed(const std::stop_token& stop) {
  while (true) {
    Look();
    MutexLock lock(&mutex_);
    if (stop.stop_requested() || finishing_) return false;
    // The first attempt finds out whether the run accepts the limits.
    if (!run_is_known_ || decision_.may_train || !CanLeave()) return true;
    changed_.WaitWithTimeout(&mutex_, options_.look_period);
  }
}

bool Volunteer::WaitToRetry(const absl::Status& status, absl::Duration wait,
                            const std::stop_token& stop) {
  LOG(WARNING) << "tries again, for as long as its certificate can be renewed: "
               << status.message();
  const absl::Time until = options_.now() + wait;
  MutexLock lock(&mutex_);
  retry_reason_ = std::string(status.message());
  while (!stop.stop_requested() && !finishing_) {
    const absl::Duration left = until - options_.now();
    // More than the whole: the clock went back.
    if (left <= absl::ZeroDuration() || left > wait) return true;
    changed_.WaitWithTimeout(&mutex_, std::min(left, options_.look_period));
  }
  return false;
}

void Volunteer::Watch(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    MutexLock lock(&mutex_);
    changed_.SignalAll();
  });
  while (!stop.stop_requested()) {
    Look();
    MutexLock lock(&mutex_);
    if (stop.stop_requested()) return;
    changed_.WaitWithTimeout(&mutex_, options_.look_period);
  }
}

Decision Volunteer::DecideNow(const Facts& facts, absl::Time now) {
  if (now >= paused_until_) paused_until_ = absl::InfinitePast();
  if (paused_until_ != absl::InfinitePast()) {
    return {
        .may_train = false, .reason = kPausedByUser, .until = paused_until_};
  }
  return Decide(options_.limits, facts, now, options_.zone,
                decision_.may_train);
}

void Volunteer::Look() {
  MutexLock looking(&look_mutex_);
  const absl::Time now = options_.now();
  account_.Add(moved_bytes_.exchange(0), now);
  const int64_t bytes_max = options_.limits.daily_transfer_bytes;
  const bool is_used_up = bytes_max > 0 && account_.byte_count() >= bytes_max;
  if (is_used_up || now >= save_time_ + kSavePeriod || now < save_time_) {
    save_time_ = now;
    const absl::Status saved = account_.Save();
    if (!saved.ok()) {
      LOG(WARNING) << "the count of the day's bytes: " << saved.message();
    }
  }
  Facts facts;
  if (options_.limits.only_idle || options_.limits.no_battery) {
    facts = options_.read_facts(now);
  }
  facts.transferred_bytes = account_.byte_count();
  facts.transfer_day = account_.day();
  std::string hold;
  {
    MutexLock lock(&mutex_);
    const Decision decision = DecideNow(facts, now);
    if (decision.may_train != decision_.may_train || now < hold_begin_) {
      hold_begin_ = now;
    }
    decision_ = decision;
    day_bytes_ = account_.byte_count();
    hold = Describe(decision, options_.zone, now);
    if (!decision.may_train && run_is_known_ && CanLeave() && !finishing_ &&
        now - hold_begin_ >= HoldMax() &&
        attempt_stop_.stop_possible()) {
      leaves_to_pause_ = true;
      attempt_stop_.request_stop();
    }
  }
  control_.Hold(hold);
}

void Volunteer::Note(const worker::IslandProgress& at) {
  MutexLock lock(&mutex_);
  const int64_t moved = at.sent_bytes + at.received_bytes;
  int64_t before = at_.sent_bytes + at_.received_bytes;
  if (moved < before || at.token_count < at_.token_count) {
    // After the loss of a process, or a new certificate, it counts anew.
    worker::IslandProgress sum = at_;
    AddTotals(sum);
    totals_ = sum;
    before = 0;
  }
  moved_bytes_ += moved - before;
  at_.activity = at.activity;
  at_.reason = at.reason;
  at_.version = at.version;
  at_.round_count = at.round_count;
  at_.step = at.step;
  at_.step_count = at.step_count;
  at_.token_count = at.token_count;
  at_.tokens_per_second = at.tokens_per_second;
  at_.sent_bytes = at.sent_bytes;
  at_.received_bytes = at.received_bytes;
  at_.saved_bytes = at.saved_bytes;
  at_.contributions = at.contributions;
}

bool Volunteer::finishing() const {
  MutexLock lock(&mutex_);
  return finishing_;
}

absl::StatusOr<Json> Volunteer::Handle(const Json& request) {
  const auto found = request.find("command");
  const std::string command = found != request.end() && found->is_string()
                                  ? found->get<std::string>()
                                  : std::string();
  RETURN_IF_ERROR(Take(command, request));
  // At once: a finish on hold would give up the round in progress.
  if (command != "status") Look();
  if (command == "finish") control_.Finish();
  MutexLock lock(&mutex_);
  changed_.SignalAll();
  return ToData(Status());
}

absl::Status Volunteer::Take(const std::string& command, const Json& request) {
  MutexLock lock(&mutex_);
  if (finishing_ && (command == "pause" || command == "resume")) {
    return absl::FailedPreconditionError("the island is finishing");
  }
  if (command == "pause" && is_strict_ && !CanLeave()) return RefusePause();
  if (command == "pause") {
    const auto seconds = request.find("seconds");
    const double span = seconds != request.end() && seconds->is_number()
                            ? seconds->get<double>()
                            : absl::ToDoubleSeconds(kPauseMax);
    paused_until_ = span >= absl::ToDoubleSeconds(kPauseMax)
                        ? absl::InfiniteFuture()
                        : options_.now() + absl::Seconds(span);
  } else if (command == "resume") {
    paused_until_ = absl::InfinitePast();
  } else if (command == "finish") {
    finishing_ = true;
    paused_until_ = absl::InfinitePast();
    // Before its first action an attempt does not notice a finish.
    if (at_.activity.empty()) attempt_stop_.request_stop();
  } else if (command != "status") {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no command \"", command, "\""));
  }
  return absl::OkStatus();
}

LocalStatus Volunteer::Status() const {
  LocalStatus status;
  status.run_id = options_.run_id;
  status.island_id = options_.island_id;
  const bool is_paused = paused_until_ != absl::InfinitePast();
  if (finishing_) {
    status.state = "finishing";
    status.reason = at_.reason;
  } else if (is_paused || !decision_.may_train) {
    status.state = "paused";
    status.reason = is_paused ? kPausedByUser : decision_.reason;
    status.until = is_paused ? paused_until_ : decision_.until;
    if (is_strict_ && attempt_stop_.stop_possible()) {
      absl::StrAppend(&status.reason, "; the round waits for this island, for ",
                      absl::FormatDuration(HoldMax()), " at most");
    }
  } else if (!retry_reason_.empty()) {
    status.state = "waiting";
    status.reason = retry_reason_;
  } else if (at_.activity.empty()) {
    status.state = "starting";
  } else {
    status.state = at_.activity == "wait" ? "waiting" : "training";
    status.reason = at_.reason;
  }
  status.progress = at_;
  AddTotals(status.progress);
  status.day_bytes = day_bytes_;
  status.day_bytes_max = options_.limits.daily_transfer_bytes;
  status.last_problem = options_.last_problem();
  return status;
}

}  // namespace atl::cli
