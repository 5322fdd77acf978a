// Objects that the handlers of ParameterService share.

#pragma once

#include <memory>
#include <string>

#include "server/live_merge/receive_budget.h"
#include "server/metrics/server_metrics.h"
#include "server/service/buffer_pool.h"
#include "server/service/run_access.h"
#include "server/service/stream_watchdog.h"
#include "server/shard/shard.h"

namespace atl::server {

// Finds the shards of this server. Thread-safe.
class ShardDirectory {
 public:
  virtual ~ShardDirectory() = default;
  // Null if no shard of the run is here. A stream holds the shard until it ends.
  virtual std::shared_ptr<Shard> FindShard(const std::string& run_id) = 0;
};

struct ServiceContext {
  ShardDirectory& shards;
  RunAccess& access;
  StreamWatchdog& push_watchdog;
  StreamWatchdog& pull_watchdog;
  std::shared_ptr<BufferPool> buffers;
  std::shared_ptr<ReceiveBudget> held;
  ServerMetrics& metrics;
};

}  // namespace atl::server
