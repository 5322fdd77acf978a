#include "worker/island/transfer_bounds.h"

#include <algorithm>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "base/layout/run_timing.h"
#include "base/obs/log.h"
#include "worker/core/plan_view.h"
#include "worker/core/pull_patience.h"

namespace atl::worker {
namespace {

// Logs once that nothing of a transfer moves. A push whose payload is sent
// waits for servers, and at durability `island` for a commit, as it should: of
// those only errors are logged.
std::function<void(const server::Waiting&)> LogWaiting(const Action& action) {
  const bool is_push = action.kind == ActionKind::kPush;
  return [is_push, fragment = action.fragment,
          logged = false](const server::Waiting& waiting) mutable {
    if (logged || (is_push && waiting.last_error.ok())) return;
    logged = true;
    LOG(WARNING) << "the " << (is_push ? "push" : "pull") << " of fragment "
                 << fragment << " waits for shard " << waiting.shard << ": "
                 << (waiting.last_error.ok()
                         ? absl::string_view("it does not answer")
                         : waiting.last_error.message());
  };
}

// True for a plan under which the pulled versions are too old.
Mailbox::ObsoleteCheck PullCheck(const TransferBounds::Env& env,
                                 const Action& action) {
  struct Newest {
    int32_t fragment;
    int64_t version_max;
  };
  std::vector<Newest> pulled;
  if (action.kind == ActionKind::kPull) {
    pulled.push_back(
        {action.fragment,
         action.version + PullPatience(env.spec, env.layout, action.fragment)});
  } else {
    for (const v1::FragmentVersion& at : action.cut) {
      pulled.push_back({at.fragment(), at.version() + 1});
    }
  }
  return [pulled](const v1::IslandPlan& plan) {
    return std::any_of(pulled.begin(), pulled.end(), [&](const Newest& one) {
      return CutVersion(plan, one.fragment) > one.version_max;
    });
  };
}

}  // namespace

TransferBounds::TransferBounds(const Env& env, Lane lane, const Action& action,
                               const v1::ContributionInfo* info)
    : mailbox_(env.mailbox), lane_(lane) {
  const bool is_push = action.kind == ActionKind::kPush;
  call_.idle_max = is_push && env.spec.durability() == v1::DURABILITY_ISLAND
                       ? kLiveMergeIdleMax
                       : kTransferIdleMax;
  call_.on_waiting = LogWaiting(action);
  Mailbox::ObsoleteCheck check = [](const v1::IslandPlan&) { return false; };
  if (!is_push) check = PullCheck(env, action);
  if (info != nullptr) check = PushCheck(env.spec, action, *info);
  call_.stop = mailbox_.BeginTransfer(std::move(check), lane);
  if (is_push && env.is_leaving) {
    // The push goes on, for a bounded time.
    call_.deadline = absl::Now() + kTransferIdleMax;
  } else {
    leave_.emplace(env.leave, [this] { mailbox_.StopTransfer(); });
  }
}

TransferBounds::~TransferBounds() {
  leave_.reset();
  // A plan may write `decided_` until this returns.
  mailbox_.EndTransfer(lane_);
}

Mailbox::ObsoleteCheck TransferBounds::PushCheck(
    const v1::RunSpec& spec, const Action& action,
    const v1::ContributionInfo& info) {
  const bool stops_in_pause = !action.needs_repush;
  if (action.needs_repush) {
    LOG(WARNING) << "fragment " << action.fragment << ", contribution "
                 << info.key().seq()
                 << ": a shard has lost it: it is pushed again";
  }
  return [this, stops_in_pause, schedule = spec.schedule(),
          anchor_version = info.anchor_version(),
          fragment = action.fragment](const v1::IslandPlan& plan) {
    // An async run does not merge a contribution that is too old.
    decided_ =
        !IsFreshEnough(schedule, anchor_version, CutVersion(plan, fragment));
    return decided_ || plan.run_state() == v1::RUN_STATE_CANCELLED ||
           (stops_in_pause && plan.run_state() == v1::RUN_STATE_PAUSED);
  };
}

absl::Status TransferBounds::Settle(const absl::Status& status) const {
  return decided_ && absl::IsCancelled(status) ? absl::OkStatus() : status;
}

}  // namespace atl::worker
