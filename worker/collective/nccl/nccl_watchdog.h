// The first error that all NCCL communicators of one rank share, and the
// deadlines of device work.
//
// A thread polls, a few hundred times a second, the queued events, NCCL's
// errors and the control world. The first error ends the control world, which
// tells the other ranks, and aborts all communicators together: an abort waits
// for kernels that may be queued behind those of another communicator.
// Thread-safe.

#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/sync/mutex.h"
#include "worker/collective/collective.h"

namespace atl::collective {

// "NCCL failed in `what`: ..."; UNAVAILABLE, as when a peer ends.
absl::Status NcclStatus(ncclResult_t result, absl::string_view what);
absl::Status CudaStatus(cudaError_t error, absl::string_view what);

// A communicator that Break may abort at any time. NCCL's thread writes `made`
// until a split or its abort has ended, so this outlives both.
struct NcclComm {
  ncclComm_t comm = nullptr;  // Null after an abort.
  ncclComm_t made = nullptr;  // The result of a split of `comm`.
};

class CudaEvent {
 public:
  static absl::StatusOr<std::shared_ptr<CudaEvent>> Create();
  ~CudaEvent() { (void)cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  cudaEvent_t get() const { return event_; }
  // cudaSuccess once the event happened. cudaErrorNotReady before; the thread's
  // last error is then cleared, because the next kernel would report it.
  cudaError_t state() const;

 private:
  explicit CudaEvent(cudaEvent_t event) : event_(event) {}
  const cudaEvent_t event_;
};

class NcclWatchdog {
 public:
  // `control` must outlive the watchdog.
  NcclWatchdog(Collective& control, int device, absl::Duration call_timeout);
  ~NcclWatchdog();
  NcclWatchdog(const NcclWatchdog&) = delete;
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  absl::Duration call_timeout() const { return call_timeout_; }
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the world. Only the first call counts. Returns its error.
  absl::Status Break(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until the communicators of a world that ended are aborted.
  void AwaitAbort() ABSL_LOCKS_EXCLUDED(mutex_);

  // Watches a nonblocking communicator.
  void Adopt(std::shared_ptr<NcclComm> comm) ABSL_LOCKS_EXCLUDED(mutex_);
  // Watches the result of a split of `comm`; null if NCCL made none.
  std::shared_ptr<NcclComm> AdoptSplit(NcclComm& comm)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls `use` with the communicator, unless the world has ended, and waits
  // until NCCL accepts the work, within the call timeout.
  absl::Status Use(NcclComm& comm, absl::string_view what,
                   absl::FunctionRef<ncclResult_t(ncclComm_t)> use)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Destroys an idle communicator.
  void Destroy(NcclComm& comm) ABSL_LOCKS_EXCLUDED(mutex_);

  // `event` must happen within the call timeout, or the world ends with `late`.
  void Expect(std::shared_ptr<CudaEvent> event, std::string late)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits on the host for an expected event, or for the end of the world.
  absl::Status Await(const CudaEvent& event) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Expected {
    std::shared_ptr<CudaEvent> event;
    absl::Time deadline;
    std::string late;
  };

  void Watch() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Look() ABSL_LOCKS_EXCLUDED(mutex_);

  Collective& control_;
  const int device_;
  const absl::Duration call_timeout_;

  mutable Mutex mutex_;
  CondVar condition_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;  // After status_.
  std::vector<std::shared_ptr<NcclComm>> comms_ ABSL_GUARDED_BY(mutex_);
  std::list<Expected> expected_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;  // Last: it uses all other members.
};

}  // namespace atl::collective
