// A WatchRun stream: the events of a run's durable log, in order, after a
// revision. Takes page by page as the receiver does, so a slow receiver costs
// no memory. Pages are shared with the run's other streams. Holds no thread.
// Ends with the run.
//
// Thread-safe. Keeps itself alive until gRPC is done with it.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/sync/mutex.h"
#include "coordinator/service/run_event_pages.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace atl::coordinator {

class RunEventWriter : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  static std::shared_ptr<RunEventWriter> Make(int64_t after_revision);

  // Gives the run's pages, and names its islands by slot. Before OnDurable.
  void Begin(std::shared_ptr<RunEventPages> pages,
             std::vector<std::string> island_ids);
  // The log is durable up to `revision`, with which the run may have ended. True
  // if Continue must follow, on a thread that may wait for the log.
  bool OnDurable(int64_t revision, bool run_ended);
  void Continue();
  // No record follows.
  void End(absl::Status status);
  // True once the receiver is gone.
  bool done() const;

  // grpc::ServerWriteReactor:
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  explicit RunEventWriter(int64_t after_revision) : sent_(after_revision) {}

  // Starts the next write, or finishes the stream. Releases the mutex while it
  // reads the log.
  void Pump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::shared_ptr<RunEventWriter> self_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<RunEventPages> pages_ ABSL_GUARDED_BY(mutex_);
  IslandNames names_ ABSL_GUARDED_BY(mutex_);  // As of sent_.
  int64_t sent_ ABSL_GUARDED_BY(mutex_);  // Newest revision in bytes_.
  int64_t durable_ ABSL_GUARDED_BY(mutex_) = 0;
  bool run_ended_ ABSL_GUARDED_BY(mutex_) = false;  // At durable_.
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool will_continue_ ABSL_GUARDED_BY(mutex_) = false;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;  // A thread is in Pump.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ByteBuffer bytes_ ABSL_GUARDED_BY(mutex_);  // gRPC's while writing_.
};

}  // namespace atl::coordinator
