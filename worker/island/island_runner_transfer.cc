#include <optional>

#include "absl/time/clock.h"
#include "base/failpoint/failpoint.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "worker/island/island_runner.h"
#include "worker/island/retry_backoff.h"
#include "worker/island/transfer_bounds.h"

// Pushes, pulls and waits, and the background threads of a streaming run.

namespace atl::worker {
namespace {

constexpr absl::Duration kIdleWait = absl::Seconds(1);

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
      mailbox_.Wake();  // The training thread ends the attempt.
      return;
    }
    int64_t seen = 0;
    Action action = NextAction(lane, &seen);
    if (action.kind == ActionKind::kWait) {
      Wait(lane, action, seen, wait_until).IgnoreError();
      continue;
    }
    wait_until.reset();
    const absl::Status done = DoTogether(lane, action);
    Done(action, done);
  }
}

// Also shows the other processes that process 0 lives, and learns of lost ones
// and of stop requests.
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
    if (lane == Lane::kTraining) TellWait(action, now);
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

absl::Status IslandRunner::DoTransfer(Lane lane, const PartCommand& command,
                                      PartResult& result) {
  const Action& action = command.action;
  const bool is_push = action.kind == ActionKind::kPush;
  bool is_leaving = false;
  {
    MutexLock lock(&mutex_);
    is_leaving = stops_forwarded_ > 0;
  }
  const Outbox::Item item =
      is_push ? part_->outbox().Find(action.fragment, action.seq) : nullptr;
  const TransferBounds bounds(
      {mailbox_, spec_, part_->layout(), options_.stop, is_leaving}, lane,
      action, item == nullptr ? nullptr : &item->info);
  if (item != nullptr) {
    MutexLock lock(&mutex_);
    phases_.PushBegan(action.seq,
                      {action.fragment, item->info.anchor_version()},
                      absl::Now());
  }
  const absl::Time begin = absl::Now();
  const server::TransferCounters before = part_->counters();
  const absl::Status done =
      bounds.Settle(part_->Do(lane, command, bounds.call(), result));
  if (is_push && done.ok()) failpoint::Hit("island.pushed.after");
  const server::TransferCounters after = part_->counters();
  const int64_t own_bytes =
      is_push ? after.sent_payload_bytes - before.sent_payload_bytes
              : after.received_payload_bytes - before.received_payload_bytes;
  const int64_t others_bytes =
      links_.group == nullptr
          ? 0
          : std::max<int64_t>(0, result.moved_bytes - own_bytes);
  const absl::Time end = absl::Now();
  MutexLock lock(&mutex_);
  if (done.ok() && is_push) phases_.PushEnded(action.seq, action.fragment, end);
  if (done.ok() && action.kind == ActionKind::kPull) {
    phases_.Pulled(action.fragment, action.version, begin, end);
  }
  (is_push ? others_sent_bytes_ : others_received_bytes_) += others_bytes;
  if (is_push) meter_.Pushed(own_bytes + others_bytes, result.moved_in);
  if (action.kind == ActionKind::kPull) {
    meter_.Pulled(own_bytes + others_bytes, result.moved_in);
  }
  return done;
}

}  // namespace atl::worker
