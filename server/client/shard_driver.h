// Moves every shard's part of one fragment concurrently, over one or more
// streams a shard, and reopens broken streams. A ShardPart makes them.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/rpc/retry.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"
#include "server/client/transfer.h"

namespace atl::server {

struct DriverSignal {
  Mutex mutex;
  CondVar changed;
};

// A stream's messages to its driver. Thread-safe.
class StreamEvents {
 public:
  explicit StreamEvents(DriverSignal& signal) : signal_(signal) {}

  // The stream moved payload, or another message (0), so it is not stuck.
  void Moved(int64_t payload_bytes) {
    payload_bytes_ += payload_bytes;
    last_progress_nanos_ = absl::ToUnixNanos(SystemClock().Now());
    if (payload_bytes > 0) last_payload_nanos_ = last_progress_nanos_.load();
  }

  // New data has arrived at the shard, or here: resets the error count.
  void Advanced() { advanced_ = true; }

  // The stream has ended, once. Afterwards it touches neither driver nor
  // itself.
  void Done(const absl::Status& status) {
    MutexLock lock(&signal_.mutex);
    done_ = status;
    signal_.changed.SignalAll();
  }

  // Call before a stream starts.
  void Begin() {
    advanced_ = false;
    last_progress_nanos_ = absl::ToUnixNanos(SystemClock().Now());
  }

  // Requires: signal.mutex is held.
  bool HasDone() const { return done_.has_value(); }

  // The stream's status, once. Requires: signal.mutex is held.
  std::optional<absl::Status> TakeDone() {
    std::optional<absl::Status> done;
    done.swap(done_);
    return done;
  }

  // Payload of all streams so far.
  int64_t payload_bytes() const { return payload_bytes_; }
  // Since Begin.
  bool advanced() const { return advanced_; }
  absl::Time last_progress() const {
    return absl::FromUnixNanos(last_progress_nanos_);
  }
  // When payload last moved, on any stream.
  absl::Time last_payload() const {
    return absl::FromUnixNanos(last_payload_nanos_);
  }

 private:
  DriverSignal& signal_;
  std::atomic<int64_t> payload_bytes_{0};
  std::atomic<int64_t> last_progress_nanos_{0};
  std::atomic<int64_t> last_payload_nanos_{0};
  std::atomic<bool> advanced_{false};
  std::optional<absl::Status> done_ ABSL_GUARDED_BY(signal_.mutex);
};

// One stream. Deleted only after it has said Done.
class BulkStream {
 public:
  virtual ~BulkStream() = default;
  virtual void Start() = 0;
  // The stream ends soon. Thread-safe.
  virtual void Cancel() = 0;
};

class ShardPart {
 public:
  virtual ~ShardPart() = default;
  virtual int32_t shard() const = 0;
  // Payload bytes of an upload that the shard has. Thread-safe.
  virtual std::optional<int64_t> done_bytes() const { return std::nullopt; }
  // Concurrent streams, >= 1.
  virtual int stream_count() const { return 1; }
  // True if the part is complete, even if streams are open. Thread-safe.
  virtual bool is_done() const { return false; }
  // Makes stream `index` in [0, stream_count) for what is missing; the caller
  // starts it. `events` must outlive it.
  virtual absl::StatusOr<std::unique_ptr<BulkStream>> Open(
      int index, StreamEvents& events) = 0;
};

struct DriverOptions {
  rpc::RetryPolicy retry;
  uint64_t seed = rpc::RandomSeed();
  absl::Duration stall_timeout;
};

// Moves all parts. Blocks until all their streams have ended. Retries and
// errors: see ParameterClient::Push.
TransferOutcome DriveShards(
    const std::vector<std::unique_ptr<ShardPart>>& parts,
    const DriverOptions& options, const CallBounds& bounds);

}  // namespace atl::server
