#include "worker/island/first_join.h"

#include "absl/time/time.h"
#include "worker/core/island_loop.h"

namespace atl::worker {
namespace {

// How often a wait looks at the stop request.
constexpr absl::Duration kLook = absl::Milliseconds(200);

}  // namespace

FirstJoin::FirstJoin(const ControlLinkOptions& options,
                     coordinator::IslandControlClient& client)
    : run_id_(options.join.run_id()),
      link_(options, client, mailbox_,
            {[this](const v1::JoinResponse& response) {
               return OnJoined(response);
             },
             [](const v1::IslandPlan&) { return absl::OkStatus(); }}) {
  link_.SetPhase(v1::ISLAND_PHASE_WAIT, "its trainer starts");
}

absl::Status FirstJoin::OnJoined(const v1::JoinResponse& response) {
  MutexLock lock(&mutex_);
  joined_ = response;
  return absl::OkStatus();
}

absl::StatusOr<v1::JoinResponse> FirstJoin::Wait(std::stop_token stop) {
  IslandLoop loop(run_id_);  // Only to learn of a refusal.
  while (!stop.stop_requested()) {
    mailbox_.DrainInto(loop);
    const Action action = loop.Next();
    if (action.kind == ActionKind::kFinish) return action.status;
    {
      MutexLock lock(&mutex_);
      if (joined_.has_value()) return *joined_;
    }
    mailbox_.Wait(kLook);
  }
  return absl::CancelledError("stopped before the island joined the run");
}

}  // namespace atl::worker
