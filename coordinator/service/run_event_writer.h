// A WatchRun stream: the events of a run's durable log, in order, after a
// revision. Reads the log page by page as the receiver takes it, so a slow
// receiver costs no memory. Holds no thread. Ends with the run.
//
// Thread-safe. Keeps itself alive until gRPC is done with it.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "atoll/v1/training_state_service.pb.h"
#include "base/sync/mutex.h"
#include "coordinator/store/store.h"
#include "grpcpp/support/server_callback.h"

namespace atl::coordinator {

class RunEventWriter : public grpc::ServerWriteReactor<v1::WatchRunResponse> {
 public:
  // `store` must outlive the stream.
  static std::shared_ptr<RunEventWriter> Make(const Store& store,
                                              const std::string& run_id,
                                              int64_t after_revision);

  // Names the run's islands by slot. Before OnDurable.
  void SetIslands(std::vector<std::string> island_ids);
  // The log is durable up to `revision`, with which the run may have ended.
  void OnDurable(int64_t revision, bool run_ended);
  // No record follows.
  void End(absl::Status status);
  // True once the receiver is gone.
  bool done() const;

  // grpc::ServerWriteReactor:
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  RunEventWriter(const Store& store, std::string run_id, int64_t after_revision)
      : store_(store), run_id_(std::move(run_id)), sent_(after_revision) {}

  void Pump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fills response_ from the log; may leave it empty.
  absl::Status ReadPage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Store& store_;
  const std::string run_id_;

  mutable Mutex mutex_;
  std::shared_ptr<RunEventWriter> self_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> island_ids_ ABSL_GUARDED_BY(mutex_);  // By slot.
  int64_t sent_ ABSL_GUARDED_BY(mutex_);  // Newest revision in response_.
  int64_t durable_ ABSL_GUARDED_BY(mutex_) = 0;
  bool run_ended_ ABSL_GUARDED_BY(mutex_) = false;  // At durable_.
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  v1::WatchRunResponse response_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::coordinator
