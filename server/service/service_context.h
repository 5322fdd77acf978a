// What the handlers of ParameterService share.

#ifndef SERVER_SERVICE_SERVICE_CONTEXT_H_
#define SERVER_SERVICE_SERVICE_CONTEXT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status/refusal.h"
#include "server/service/buffer_pool.h"
#include "server/service/shard.h"
#include "server/service/stream_watchdog.h"

namespace atl::server {

// Finds the shards of this server. Thread-safe.
class ShardDirectory {
 public:
  virtual ~ShardDirectory() = default;
  // Null if this server holds no shard of the run. The shard lives as long as
  // the server's streams do.
  virtual Shard* FindShard(const std::string& run_id) = 0;
};

// The error of a run of which no shard is here.
inline absl::Status ShardNotHere(const std::string& run_id) {
  return Refuse(absl::StatusCode::kNotFound, "SHARD_NOT_HERE",
                absl::StrCat("this server holds no shard of run \"", run_id,
                             "\"; fetch the plan"));
}

// Payload that streams of level ISLAND hold in the slices that it came in. The
// listener's quota counts these, and ends calls when it is used up, so that
// they take only a part of it. Thread-safe.
class HeldBytes {
 public:
  // `listener_bytes_max`: rpc::RpcServer::Spec::memory_bytes_max; a quarter of it
  // may be held.
  explicit HeldBytes(int64_t listener_bytes_max)
      : bytes_max_(listener_bytes_max / 4) {}

  // False, and nothing is added, if there would be too many.
  bool Add(int64_t bytes) {
    if ((bytes_ += bytes) <= bytes_max_) return true;
    bytes_ -= bytes;
    return false;
  }
  void Remove(int64_t bytes) { bytes_ -= bytes; }

 private:
  const int64_t bytes_max_;
  std::atomic<int64_t> bytes_{0};
};

struct ServiceContext {
  ShardDirectory& shards;
  StreamWatchdog& push_watchdog;
  StreamWatchdog& pull_watchdog;
  std::shared_ptr<BufferPool> buffers;
  std::shared_ptr<HeldBytes> held;
};

}  // namespace atl::server

#endif  // SERVER_SERVICE_SERVICE_CONTEXT_H_
