// Bounds the transfers of one action: by plans that make them obsolete, by the
// wish to leave, and by the time in which nothing moves.
//
// Lives as long as the action runs. Thread-compatible.

#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "base/layout/layout.h"
#include "server/client/parameter_client.h"
#include "worker/core/action.h"
#include "worker/island/mailbox.h"

namespace atl::worker {

// The longest time in which no byte of a push or pull moves before the loop
// looks again at its plan: a slow link may take hours. A leaving island gives a
// push this long in all.
inline constexpr absl::Duration kTransferIdleMax = absl::Seconds(30);
// The same for a push at durability `island`, which waits for other islands and
// for the server's memory: as long as a round may take. A newer plan ends it
// earlier.
inline constexpr absl::Duration kLiveMergeIdleMax = absl::Minutes(10);

class TransferBounds {
 public:
  struct Env {
    Mailbox& mailbox;
    const v1::RunSpec& spec;
    const RunLayout& layout;
    std::stop_token leave;  // The island is asked to leave.
    bool is_leaving;        // The loop knows of it.
  };

  // `action`: kPush, kPull or kEvaluate, of `lane`. `info`: of the contribution
  // that kPush sends; null if it is decided already.
  TransferBounds(const Env& env, Lane lane, const Action& action,
                 const v1::ContributionInfo* info);
  ~TransferBounds();
  TransferBounds(const TransferBounds&) = delete;
  TransferBounds& operator=(const TransferBounds&) = delete;

  const server::CallBounds& call() const { return call_; }
  // Converts the status of an action's transfers to the action's. A push that a
  // plan stopped that has the contribution's outcome is done: the plan may know
  // the commit before the servers' answer arrives. Without an outcome the shards
  // may lack a part, and never tell of it.
  absl::Status Settle(const absl::Status& status) const;

 private:
  Mailbox::ObsoleteCheck PushCheck(const v1::RunSpec& spec,
                                   const Action& action,
                                   const v1::ContributionInfo& info);

  Mailbox& mailbox_;
  const Lane lane_;
  std::atomic<bool> decided_{false};
  server::CallBounds call_;
  std::optional<std::stop_callback<std::function<void()>>> leave_;
};

}  // namespace atl::worker
