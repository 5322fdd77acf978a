// A membership of an island whose trainer must know its data shard before it
// has a model. It lasts until the island's own ControlLink joins again, which
// keeps slot and data shard.
//
// Thread-compatible.

#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "atoll/v1/island_service.pb.h"
#include "base/sync/mutex.h"
#include "coordinator/client/island_control_client.h"
#include "worker/island/control_link.h"
#include "worker/island/mailbox.h"

namespace atl::worker {

class FirstJoin {
 public:
  // Starts to join. `client` must outlive it.
  FirstJoin(const ControlLinkOptions& options,
            coordinator::IslandControlClient& client);

  // Returns the newest join's answer once there is one.
  //
  // CANCELLED: `stop` was requested. Others: the coordinator refuses, or is
  // away for too long (ControlLinkOptions).
  absl::StatusOr<v1::JoinResponse> Wait(std::stop_token stop);

 private:
  absl::Status OnJoined(const v1::JoinResponse& response);

  const std::string run_id_;
  Mailbox mailbox_;
  Mutex mutex_;
  std::optional<v1::JoinResponse> joined_ ABSL_GUARDED_BY(mutex_);
  ControlLink link_;  // Last: its threads call this object.
};

}  // namespace atl::worker
