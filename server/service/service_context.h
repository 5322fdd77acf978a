// What the handlers of ParameterService share.

#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status/refusal.h"
#include "server/live_merge/receive_budget.h"
#include "server/service/buffer_pool.h"
#include "server/service/stream_watchdog.h"
#include "server/shard/shard.h"

namespace atl::server {

// Finds the shards of this server. Thread-safe.
class ShardDirectory {
 public:
  virtual ~ShardDirectory() = default;
  // Null if no shard of the run is here. The shard outlives all streams.
  virtual Shard* FindShard(const std::string& run_id) = 0;
};

inline absl::Status ShardNotHere(const std::string& run_id) {
  return Refuse(absl::StatusCode::kNotFound, "SHARD_NOT_HERE",
                absl::StrCat("this server holds no shard of run \"", run_id,
                             "\"; fetch the plan"));
}

struct ServiceContext {
  ShardDirectory& shards;
  StreamWatchdog& push_watchdog;
  StreamWatchdog& pull_watchdog;
  std::shared_ptr<BufferPool> buffers;
  std::shared_ptr<ReceiveBudget> held;
};

}  // namespace atl::server
