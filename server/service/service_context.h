// Objects that the handlers of ParameterService share.

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/live_merge/receive_budget.h"
#include "server/metrics/server_metrics.h"
#include "server/service/buffer_pool.h"
#include "server/service/run_access.h"
#include "server/service/stream_watchdog.h"
#include "server/shard/shard.h"

namespace atl::server {

struct ServiceContext {
  // Null if no shard of the run is here. A stream holds the shard until it
  // ends. Thread-safe.
  std::function<std::shared_ptr<Shard>(const std::string& run_id)> find_shard;
  RunAccess& access;
  StreamWatchdog& push_watchdog;
  StreamWatchdog& pull_watchdog;
  std::shared_ptr<BufferPool> buffers;
  std::shared_ptr<ReceiveBudget> held;
  ServerMetrics& metrics;
};

}  // namespace atl::server
