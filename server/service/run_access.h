// Whose certificate may touch which run here: what the newest plan says, and
// for how long it counts. Thread-safe.
//
// The certificate of an enrolled island can be revoked, and only a plan tells.
// So such islands are refused once the coordinator has not answered for the
// server's lease. They call again, and nothing of theirs is lost. Certificates
// that an operator issued are not refused then: an absent coordinator does not
// stop them.

#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "atoll/v1/plan.pb.h"
#include "base/rpc/authorization.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"

namespace atl::server {

class RunAccess {
 public:
  // `clock` must outlive it.
  explicit RunAccess(const Clock& clock) : clock_(clock) {}

  void TakePlan(const v1::ServerPlan& plan);
  // The coordinator has answered a report; its plan counts for `lease`.
  void NoteAnswer(absl::Duration lease);

  // OK if the caller may touch the run. Everybody but islands and readers may.
  // PERMISSION_DENIED: NOT_YOUR_RUN: the certificate is for other runs; REVOKED:
  // an operator has revoked it.
  // UNAVAILABLE, PLAN_TOO_OLD: it is an enrolled one, and the plan is too old.
  absl::Status Check(const rpc::Caller& caller, const std::string& run_id,
                     const std::string& run_uid) const;
  // Check with these arguments, for a stream that asks again. Must not outlive
  // this.
  std::function<absl::Status()> MakeCheck(const rpc::Caller& caller,
                                          const std::string& run_id,
                                          const std::string& run_uid) const;

 private:
  const Clock& clock_;
  mutable Mutex mutex_;
  std::string cluster_id_ ABSL_GUARDED_BY(mutex_);
  // Names by run_uid.
  std::map<std::string, std::set<std::string>> revoked_
      ABSL_GUARDED_BY(mutex_);
  // Until when the plan counts.
  absl::Time end_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace atl::server
