#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <stop_token>
#include <utility>

#include "absl/time/clock.h"
#include "base/failpoint/failpoint.h"
#include "base/layout/digest.h"
#include "base/layout/exchange.h"
#include "base/layout/run_timing.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "worker/api/island_runner.h"
#include "worker/api/retry_backoff.h"

// Pushes, pulls and waits, and the threads that do them beside training.

namespace atl::worker {
namespace {

// Longest wait without news.
constexpr absl::Duration kIdleWait = absl::Seconds(1);
// Longest that nothing of a push or pull moves before the loop looks around: a
// slow link may take hours. An island that leaves gives a push so long in all.
constexpr absl::Duration kTransferIdleMax = absl::Seconds(30);

}  // namespace

void IslandRunner::StartLanes() {
  if (!streaming_) return;
  for (const Lane lane : {Lane::kPush, Lane::kPull}) {
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
    {
      MutexLock lock(&mutex_);
      if (lanes_stopped_) return;
    }
    int64_t seen = 0;
    const Action action = NextAction(lane, &seen);
    if (action.kind == ActionKind::kWait) {
      Wait(lane, action, seen, wait_until);
      continue;
    }
    wait_until.reset();
    Done(action, action.kind == ActionKind::kPush ? Push(action, lane)
                                                  : Pull(action, lane));
  }
}

void IslandRunner::Wait(Lane lane, const Action& action, int64_t seen,
                        std::optional<absl::Time>& wait_until) {
  const absl::Time now = absl::Now();
  if (action.failure_count == 0) {
    wait_until.reset();
    mailbox_.Wait(kIdleWait, seen);
    return;
  }
  if (!wait_until.has_value()) {
    wait_until = now + RetryBackoff(action.failure_count);
  }
  if (now >= *wait_until) {
    wait_until.reset();
    MutexLock lock(&mutex_);
    loop_.OnWaited(lane);
    return;
  }
  mailbox_.Wait(*wait_until - now, seen);
}

absl::Status IslandRunner::Pull(const Action& action, Lane lane) {
  server::CallBounds bounds;
  bounds.idle_max = kTransferIdleMax;
  bounds.stop = mailbox_.BeginTransfer(
      [&](const v1::IslandPlan& plan) {
        return !IsFreshEnough(spec_.schedule(), action.version,
                              CutVersion(plan, action.fragment));
      },
      lane);
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
  mailbox_.EndTransfer(lane);
  {
    MutexLock lock(&mutex_);
    meter_.Pulled(parameters_->counters().received_payload_bytes - before,
                  absl::Now() - begin);
  }
  RETURN_IF_ERROR(outcome.status);
  state_->SetAnchor(action.fragment);
  failpoint::Hit("island.pulled.after");
  return absl::OkStatus();
}

absl::Status IslandRunner::Push(const Action& action, Lane lane) {
  const Outbox::Item item = outbox_.Find(action.fragment, action.seq);
  if (item == nullptr) {
    return absl::AbortedError("the contribution is decided already");
  }
  const v1::ContributionInfo& info = item->info;
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
  bounds.stop = mailbox_.BeginTransfer(
      [&](const v1::IslandPlan& plan) {
        // Of an async run too old to count: it pulls the newest and goes on.
        decided = !IsFreshEnough(spec_.schedule(), info.anchor_version(),
                                 CutVersion(plan, info.key().fragment()));
        return decided || plan.run_state() == v1::RUN_STATE_CANCELLED ||
               (stops_in_pause && plan.run_state() == v1::RUN_STATE_PAUSED);
      },
      lane);
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
  const int64_t before = parameters_->counters().sent_payload_bytes;
  const absl::Time begin = absl::Now();
  const server::TransferOutcome outcome =
      parameters_->Push(info, item->bytes, bounds);
  mailbox_.EndTransfer(lane);
  {
    MutexLock lock(&mutex_);
    meter_.Pushed(parameters_->counters().sent_payload_bytes - before,
                  absl::Now() - begin);
  }
  // At level ISLAND the plan may know of the commit before the servers' answer
  // is here; that is what was waited for.
  if (!decided || !absl::IsCancelled(outcome.status)) {
    RETURN_IF_ERROR(outcome.status);
  }
  failpoint::Hit("island.pushed.after");
  return absl::OkStatus();
}

// What is evaluated is theta: with a view it is not what anchors are.
absl::Status IslandRunner::PullForEvaluation(const Action& action) {
  if (!HasView(spec_)) {
    state_->SetLocalToAnchors();
    return absl::OkStatus();
  }
  for (const v1::FragmentVersion& at : action.cut) {
    server::CallBounds bounds;
    bounds.idle_max = kTransferIdleMax;
    bounds.stop = mailbox_.BeginTransfer([&at](const v1::IslandPlan& newer) {
      return CutVersion(newer, at.fragment()) > at.version() + 1;
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

}  // namespace atl::worker
