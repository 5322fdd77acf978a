// The actions that a shard tries without success, with their reasons. A reason
// is kept until its action succeeds or the plan no longer wants it.
//
// Pure. Thread-compatible.

#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "atoll/v1/plan.pb.h"
#include "server/core/shard_machine.h"

namespace atl::server {

class BlockedReasons {
 public:
  // The operation that fails: an action of a kind on a fragment or a
  // checkpoint, taking contributions to a fragment, reading one of its
  // versions, or copying checkpoints to the mirror.
  struct Cause {
    static constexpr int kTakeContributions = -1;
    static constexpr int kReadVersion = 1000;
    static constexpr int kMirror = 1001;  // Reported last.

    int kind = 0;  // An ActionKind or one of the above.
    int32_t fragment = 0;
    int64_t version = 0;  // For kReadVersion.
    std::string pin_id;   // For actions on checkpoints.

    friend auto operator<=>(const Cause&, const Cause&) = default;
  };
  static Cause ToCause(const ShardAction& action);

  // Notes the reason, cut to what a report holds. True if it is new: the caller
  // logs it, once.
  bool Note(const Cause& cause, absl::string_view reason);
  void Erase(const Cause& cause) { reasons_.erase(cause); }
  // The prepared version needs no measuring and no live merge any longer.
  void OnPrepared(int32_t fragment);
  // Forgets what `plan`, the newest one, no longer wants.
  void Forget(const v1::ServerRunPlan& plan);

  // The reason that a report names; empty if nothing is blocked.
  std::string First() const;

 private:
  std::map<Cause, std::string> reasons_;
};

}  // namespace atl::server
