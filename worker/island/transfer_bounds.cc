#include "worker/island/transfer_bounds.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/layout/run_timing.h"
#include "base/obs/log.h"
#include "base/rpc/wait_notice.h"
#include "worker/core/plan_view.h"
#include "worker/core/pull_patience.h"

namespace atl::worker {
namespace {

// Logs that nothing of a transfer moves, at growing intervals. A push whose payload is sent
// waits for servers, and at durability `island` for a commit, as it should: of
// those only errors are logged.
std::function<void(const server::TransferWait&)> LogWaiting(const Action& action) {
  const bool is_push = action.kind == ActionKind::kPush;
  const std::string what = action.kind == ActionKind::kEvaluate
                               ? "a pull for the evaluation"
                               : absl::StrCat("the ", is_push ? "push" : "pull",
                                              " of fragment ", action.fragment);
  return
      [is_push, what,
       notice = rpc::WaitNotice()](const server::TransferWait& waiting) mutable {
        if (is_push && waiting.last_error.ok()) return;
        if (!notice.IsDue(waiting.span)) return;
        // The error names the address.
        LOG(WARNING) << what << " waits for shard " << waiting.shard << ": "
                     << rpc::DescribeSilence(waiting.last_error)
                     << (waiting.last_error.ok() ? "" : "; ")
                     << waiting.last_error.message();
      };
}

// True for a plan under which the pulled version is too old, or was lost in a
// restore.
Mailbox::ObsoleteCheck PullCheck(const TransferBounds::Env& env,
                                 const Action& action) {
  if (action.kind == ActionKind::kPull) {
    const int64_t version_max =
        action.version + PullPatience(env.spec, env.layout, action.fragment);
    return [fragment = action.fragment, version_max,
            run_epoch = action.run_epoch](const auto& plan) {
      return plan.run_epoch() > run_epoch ||
             CutVersion(plan, fragment) > version_max;
    };
  }
  // An evaluation pulls one fragment after the other, and needs no version of
  // those that it has. A server refuses a version that it no longer holds.
  return [cut = action.cut,
          run_epoch = action.run_epoch](const v1::IslandPlan& plan) {
    return plan.run_epoch() > run_epoch ||
           std::all_of(cut.begin(), cut.end(), [&](const auto& at) {
             return CutVersion(plan, at.fragment()) > at.version() + 1;
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
    // A leaving island's push continues, for a bounded time.
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
  return [this, stops_in_pause, schedule = spec.schedule(), key = info.key(),
          anchor_version = info.anchor_version(),
          fragment = action.fragment,
          run_epoch = action.run_epoch](const v1::IslandPlan& plan) {
    // An async run does not merge a contribution that is too old, and after a
    // restore none of those before counts.
    const bool is_late =
        plan.run_epoch() > run_epoch ||
        !IsFreshEnough(schedule, anchor_version, CutVersion(plan, fragment));
    decided_ = is_late && FindOutcome(plan, key) != nullptr;
    return is_late || plan.run_state() == v1::RUN_STATE_CANCELLED ||
           (stops_in_pause && plan.run_state() == v1::RUN_STATE_PAUSED);
  };
}

absl::Status TransferBounds::Settle(const absl::Status& status) const {
  return decided_ && absl::IsCancelled(status) ? absl::OkStatus() : status;
}

}  // namespace atl::worker
