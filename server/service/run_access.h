// Decides which certificate may touch which run here, by the newest plan, and
// for how long that plan counts. Thread-safe.
//
// The certificate of an enrolled island can be revoked, and only a plan tells
// this. So enrolled islands are refused if, for the length of the server's
// lease, no answer has shown that the newest plan is here (core/plan_lease).
// They call again, and lose nothing. Streams that have begun continue for
// kAwayMax more while the coordinator is away. Certificates that an operator
// issued are not refused then: an absent coordinator does not stop them.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "atoll/v1/plan.pb.h"
#include "base/rpc/authorization.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"
#include "server/core/plan_lease.h"

namespace atl::server {

class RunAccess {
 public:
  // While the coordinator is away, a stream continues for this time after the
  // lease. So a revoked certificate may have one for that long.
  static constexpr absl::Duration kAwayMax = absl::Minutes(10);

  // `clock` must outlive it.
  explicit RunAccess(const Clock& clock) : clock_(clock) {}

  void TakePlan(const v1::ServerPlan& plan);
  // The coordinator has answered a report: a plan of `revision` or newer counts
  // for `lease` from now. 0: the plan that is here counts.
  void NoteAnswer(int64_t revision, absl::Duration lease);
  // As PlanLease::TakeOverdue.
  bool TakeOverdue();

  // OK if the caller may touch the run. All roles but islands and readers may.
  // PERMISSION_DENIED: NOT_YOUR_RUN: the certificate is for other runs; REVOKED:
  // an operator has revoked it.
  // UNAVAILABLE, NOT_ENROLLED: the plan does not have this enrolled certificate:
  // it is too new for the plan, or the coordinator has no record of it.
  // UNAVAILABLE, PLAN_TOO_OLD: an enrolled certificate, and too old a plan.
  absl::Status Check(const rpc::Caller& caller, const std::string& run_id,
                     const std::string& run_uid) const;
  // The same for a stream that has begun, which asks again: PLAN_TOO_OLD as
  // PlanLease::AllowsBegun. Must not outlive this.
  std::function<absl::Status()> MakeCheck(const rpc::Caller& caller,
                                          const std::string& run_id,
                                          const std::string& run_uid) const;

 private:
  absl::Status CheckThat(bool plan_counts, const rpc::Caller& caller,
                         const std::string& run_id, const std::string& run_uid)
      const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock& clock_;
  mutable Mutex mutex_;
  std::string cluster_id_ ABSL_GUARDED_BY(mutex_);
  // Names by run_uid.
  std::map<std::string, std::set<std::string>> revoked_
      ABSL_GUARDED_BY(mutex_);
  // EnrolledDigest of the certificates that count, by run_uid; without a run if
  // its plan does not list them.
  std::map<std::string, std::set<std::string>> enrolled_
      ABSL_GUARDED_BY(mutex_);
  PlanLease lease_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
