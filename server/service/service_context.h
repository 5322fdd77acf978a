// Objects that the handlers of ParameterService share.

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/live_merge/receive_budget.h"
#include "server/metrics/server_metrics.h"
#include "server/service/buffer_pool.h"
#include "server/service/run_access.h"
#include "server/service/stream_watchdog.h"
#include "server/shard/shard.h"

namespace atl::server {

struct ServiceContext {
  // NOT_FOUND, SHARD_NOT_HERE: no shard of the run is here. UNAVAILABLE,
  // STARTING: it goes back to an earlier cut. A stream holds the shard until
  // it ends. Thread-safe.
  std::function<absl::StatusOr<std::shared_ptr<Shard>>(
      const std::string& run_id)>
      find_shard;
  RunAccess& access;
  StreamWatchdog& push_watchdog;
  StreamWatchdog& pull_watchdog;
  std::shared_ptr<BufferPool> buffers;
  std::shared_ptr<ReceiveBudget> held;
  ServerMetrics& metrics;
};

}  // namespace atl::server
