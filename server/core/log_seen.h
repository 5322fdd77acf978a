// What a server has seen of the coordinator's log. A coordinator that runs on
// another log, or on an older copy of it, finds that out by what the server
// sends back; the server does not act on what it says. Pure.
// Thread-compatible.

#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/server_service.pb.h"

namespace atl::server {

class LogSeen {
 public:
  LogSeen() = default;
  // What the data directory remembers.
  LogSeen(v1::LogPosition newest, int64_t coordinator_epoch)
      : newest_(std::move(newest)), coordinator_epoch_(coordinator_epoch) {}

  // Takes in a coordinator's answer, or the position of a plan before anything
  // is done with the plan. Positions that are not set are not checked.
  //
  // FAILED_PRECONDITION, and nothing is taken in. OTHER_CLUSTER: it is of
  // another log. LOG_BEHIND: its epoch is lower than one seen before, or the
  // plan is of an earlier place in the log than a plan before.
  absl::Status OnRegistered(const v1::RegisterServerResponse& response);
  absl::Status OnPlan(const v1::ServerPlan& plan);

  // The newest position; no cluster_id before the first.
  const v1::LogPosition& newest() const { return newest_; }
  // The largest one.
  int64_t coordinator_epoch() const { return coordinator_epoch_; }

 private:
  absl::Status Check(int64_t coordinator_epoch,
                     const v1::LogPosition& position) const;
  void Note(int64_t coordinator_epoch, const v1::LogPosition& position);

  v1::LogPosition newest_;
  int64_t coordinator_epoch_ = 0;
  // Of plans. An answer to a registration may be newer than the plan that
  // follows it: a plan has the position at which it was made.
  int64_t plan_index_ = 0;
};

}  // namespace atl::server
