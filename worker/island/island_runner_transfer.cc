#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <stop_token>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "base/layout/run_timing.h"
#include "base/obs/log.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "worker/core/plan_view.h"
#include "worker/core/pull_patience.h"
#include "worker/island/island_runner.h"
#include "worker/island/retry_backoff.h"

// Pushes, pulls and waits, and the threads that do them beside training.

namespace atl::worker {
namespace {

// Longest wait without news.
constexpr absl::Duration kIdleWait = absl::Seconds(1);

// Says once of a transfer that nothing of it moves. A push whose payload is out
// waits for servers, and at level ISLAND for a commit, as it should: of those
// only what goes wrong is told.
std::function<void(const server::Waiting&)> TellWaiting(
    const TransferWhat& what) {
  const bool is_push = what.kind == ActionKind::kPush;
  return [is_push, fragment = what.fragment,
          told = false](const server::Waiting& waiting) mutable {
    if (told || (is_push && waiting.last_error.ok())) return;
    told = true;
    LOG(WARNING) << "the " << (is_push ? "push" : "pull") << " of fragment "
                 << fragment << " waits for shard " << waiting.shard << ": "
                 << (waiting.last_error.ok()
                         ? absl::string_view("it does not answer")
                         : waiting.last_error.message());
  };
}

}  // namespace

void IslandRunner::StartLanes() {
  if (!streaming_) return;
  for (const Lane lane : {Lane::kPush, Lane::kPull, Lane::kSave}) {
    lanes_.emplace_back([this, lane] { RunLane(lane); });
  }
}

void IslandRunner::StopLanes() {
  {
    MutexLock lock(&mutex_);
    lanes_stopped_ = true;
  }
  mailbox_.CloseTransfers();
  for (std::thread& lane : lanes_) lane.join();
  lanes_.clear();
}

void IslandRunner::RunLane(Lane lane) {
  std::optional<absl::Time> wait_until;
  while (true) {
    bool stopped = false;
    {
      MutexLock lock(&mutex_);
      stopped = lanes_stopped_;
    }
    if (stopped) return EndOthers(lane, absl::OkStatus());
    if (lost()) {
      mailbox_.Wake();  // The computing thread ends the attempt.
      return;
    }
    int64_t seen = 0;
    const Action action = NextAction(lane, &seen);
    if (action.kind == ActionKind::kWait) {
      Wait(lane, action, seen, wait_until).IgnoreError();
      continue;
    }
    wait_until.reset();
    Done(action, DoTogether(lane, action));
  }
}

// Whoever leads others tells them that it waits, so that they do not take it
// for gone, and hears if one of them is, or wants to stop.
absl::Status IslandRunner::Wait(Lane lane, const Action& action, int64_t seen,
                                std::optional<absl::Time>& wait_until) {
  if (links_.group != nullptr) {
    PartCommand command;
    command.action.kind = ActionKind::kWait;
    RETURN_IF_ERROR(links_.group->Send(lane, EncodeCommand(command)));
    const int stop_before = links_.group->stop();
    RETURN_IF_ERROR(links_.group->Agree(lane, absl::OkStatus()));
    if (links_.group->stop() > stop_before) return absl::OkStatus();
  }
  const absl::Time now = SystemClock().Now();
  if (action.failure_count == 0) {
    wait_until.reset();
    mailbox_.Wait(kIdleWait, seen);
    return absl::OkStatus();
  }
  if (!wait_until.has_value()) {
    wait_until = now + RetryBackoff(action.failure_count);
  }
  if (now >= *wait_until) {
    wait_until.reset();
    MutexLock lock(&mutex_);
    loop_.OnWaited(lane);
    return absl::OkStatus();
  }
  mailbox_.Wait(*wait_until - now, seen);
  return absl::OkStatus();
}

IslandPart::Transferred IslandRunner::Bound(
    const TransferWhat& what, const IslandPart::Transfer& transfer) {
  const bool is_push = what.kind == ActionKind::kPush;
  const server::TransferCounters before = part_->counters();
  const absl::Time begin = absl::Now();
  IslandPart::Transferred moved =
      is_push ? BoundPush(what, transfer) : BoundPull(what, transfer);
  const absl::Duration taken = absl::Now() - begin;
  const server::TransferCounters after = part_->counters();
  const int64_t own_bytes =
      is_push ? after.sent_payload_bytes - before.sent_payload_bytes
              : after.received_payload_bytes - before.received_payload_bytes;
  const int64_t others_bytes =
      links_.group == nullptr
          ? 0
          : std::max<int64_t>(0, moved.payload_bytes - own_bytes);
  MutexLock lock(&mutex_);
  (is_push ? others_sent_bytes_ : others_received_bytes_) += others_bytes;
  if (is_push) meter_.Pushed(own_bytes + others_bytes, taken);
  if (what.kind == ActionKind::kPull) {
    meter_.Pulled(own_bytes + others_bytes, taken);
  }
  return moved;
}

IslandPart::Transferred IslandRunner::BoundPull(
    const TransferWhat& what, const IslandPart::Transfer& transfer) {
  server::CallBounds bounds;
  bounds.idle_max = kTransferIdleMax;
  bounds.on_waiting = TellWaiting(what);
  const int64_t newest_max =
      what.version +
      (what.kind == ActionKind::kEvaluate
           ? 1
           : PullPatience(spec_, part_->layout(), what.fragment));
  bounds.stop = mailbox_.BeginTransfer(
      [&](const v1::IslandPlan& plan) {
        return CutVersion(plan, what.fragment) > newest_max;
      },
      what.lane);
  // Who leaves needs no parameters.
  const std::stop_callback leave(options_.stop,
                                 [this] { mailbox_.StopTransfer(); });
  IslandPart::Transferred moved = transfer(bounds);
  mailbox_.EndTransfer(what.lane);
  return moved;
}

IslandPart::Transferred IslandRunner::BoundPush(
    const TransferWhat& what, const IslandPart::Transfer& transfer) {
  const v1::ContributionInfo& info = what.contribution->info;
  server::CallBounds bounds;
  bounds.idle_max = spec_.durability() == v1::DURABILITY_ISLAND
                        ? kGatherIdleMax
                        : kTransferIdleMax;
  bounds.on_waiting = TellWaiting(what);
  const bool stops_in_pause = !what.needs_repush;
  if (what.needs_repush) {
    LOG(WARNING) << "fragment " << what.fragment << ", contribution "
                 << info.key().seq()
                 << ": a shard has lost it: it is pushed again";
  }
  std::atomic<bool> decided{false};
  bounds.stop = mailbox_.BeginTransfer(
      [&](const v1::IslandPlan& plan) {
        // Of an async run too old to count: it pulls the newest and goes on.
        decided = !IsFreshEnough(spec_.schedule(), info.anchor_version(),
                                 CutVersion(plan, info.key().fragment()));
        return decided || plan.run_state() == v1::RUN_STATE_CANCELLED ||
               (stops_in_pause && plan.run_state() == v1::RUN_STATE_PAUSED);
      },
      what.lane);
  bool leaving = false;
  {
    MutexLock lock(&mutex_);
    leaving = stops_forwarded_ > 0;
  }
  std::optional<std::stop_callback<std::function<void()>>> leave;
  if (leaving) {
    bounds.deadline = absl::Now() + kTransferIdleMax;
  } else {
    // Goes on, bounded, once the loop knows that it is to leave.
    leave.emplace(options_.stop, [this] { mailbox_.StopTransfer(); });
  }
  IslandPart::Transferred moved = transfer(bounds);
  // Before `decided` ends, which a plan would write.
  mailbox_.EndTransfer(what.lane);
  // At level ISLAND the plan may know of the commit before the servers' answer
  // is here; that is what was waited for.
  if (decided && absl::IsCancelled(moved.status)) {
    moved.status = absl::OkStatus();
  }
  return moved;
}

}  // namespace atl::worker
