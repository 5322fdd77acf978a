#include "worker/collective/nccl/nccl_watchdog.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"

namespace atl::collective {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(3);
constexpr absl::Duration kPollEvery = absl::Microseconds(20);

// In a group NCCL tells all kernels to end before it waits for any.
void AbortTogether(const std::vector<ncclComm_t>& comms) {
  if (comms.empty()) return;
  (void)ncclGroupStart();
  for (ncclComm_t comm : comms) (void)ncclCommAbort(comm);
  (void)ncclGroupEnd();
}

using Comms = std::vector<std::shared_ptr<NcclComm>>;

// Takes the part of each of `from`, if it is not null, and leaves null.
std::vector<ncclComm_t> Take(const Comms& from, ncclComm_t NcclComm::*part) {
  std::vector<ncclComm_t> taken;
  for (const std::shared_ptr<NcclComm>& comm : from) {
    ncclComm_t& own = (*comm).*part;
    if (own != nullptr) taken.push_back(std::exchange(own, nullptr));
  }
  return taken;
}

}  // namespace

absl::Status NcclStatus(ncclResult_t result, absl::string_view what) {
  if (result == ncclSuccess || result == ncclInProgress) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("NCCL failed in ", what, ": ",
                                             ncclGetErrorString(result), " (",
                                             ncclGetLastError(nullptr), ")"));
}

absl::Status CudaStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("CUDA failed in ", what, ": ", cudaGetErrorString(error)));
}

absl::StatusOr<std::shared_ptr<CudaEvent>> CudaEvent::Create() {
  cudaEvent_t event = nullptr;
  RETURN_IF_ERROR(
      CudaStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                 "making an event"));
  return std::shared_ptr<CudaEvent>(new CudaEvent(event));
}

cudaError_t CudaEvent::state() const {
  const cudaError_t state = cudaEventQuery(event_);
  if (state == cudaErrorNotReady) (void)cudaGetLastError();
  return state;
}

NcclWatchdog::NcclWatchdog(Collective& control, int device,
                           absl::Duration call_timeout)
    : control_(control),
      device_(device),
      call_timeout_(call_timeout),
      thread_([this] { Watch(); }) {}

NcclWatchdog::~NcclWatchdog() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    condition_.SignalAll();
  }
  thread_.join();
}

absl::Status NcclWatchdog::status() const {
  MutexLock lock(&mutex_);
  return status_;
}

absl::Status NcclWatchdog::Break(const absl::Status& status) {
  Comms comms;
  std::vector<ncclComm_t> taken;
  {
    MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    status_ = status;  // Later calls are refused.
    comms.swap(comms_);
    taken = Take(comms, &NcclComm::comm);
    expected_.clear();
    condition_.SignalAll();
  }
  control_.Abort(status.message());
  AbortTogether(taken);
  {
    MutexLock lock(&mutex_);
    taken = Take(comms, &NcclComm::made);
  }
  AbortTogether(taken);
  MutexLock lock(&mutex_);
  aborted_ = true;
  condition_.SignalAll();
  return status;
}

void NcclWatchdog::AwaitAbort() {
  MutexLock lock(&mutex_);
  while (!status_.ok() && !aborted_) condition_.Wait(&mutex_);
}

void NcclWatchdog::Adopt(std::shared_ptr<NcclComm> comm) {
  ncclComm_t late;
  {
    MutexLock lock(&mutex_);
    if (status_.ok()) return comms_.push_back(std::move(comm));
    late = std::exchange(comm->comm, nullptr);
  }
  AbortTogether({late});
}

std::shared_ptr<NcclComm> NcclWatchdog::AdoptSplit(NcclComm& comm) {
  auto made = std::make_shared<NcclComm>();
  {
    MutexLock lock(&mutex_);
    made->comm = std::exchange(comm.made, nullptr);
  }
  if (made->comm == nullptr) return nullptr;
  Adopt(made);
  return made;
}

absl::Status NcclWatchdog::Use(
    NcclComm& comm, absl::string_view what,
    absl::FunctionRef<ncclResult_t(ncclComm_t)> use) {
  const absl::Time deadline = SystemClock().Now() + call_timeout_;
  absl::Status status;
  bool is_first = true;
  while (true) {
    ncclResult_t state = ncclSuccess;
    {
      MutexLock lock(&mutex_);
      if (!status_.ok()) return status_;
      if (comm.comm == nullptr) {
        return absl::UnavailableError("the communicator has ended");
      }
      status = is_first ? NcclStatus(use(comm.comm), what) : absl::OkStatus();
      if (status.ok()) {
        status =
            NcclStatus(ncclCommGetAsyncError(comm.comm, &state), "asking it");
      }
      if (status.ok()) status = NcclStatus(state, what);
    }
    is_first = false;
    if (!status.ok()) return Break(status);
    if (state == ncclSuccess) return status;
    if (SystemClock().Now() > deadline) {
      return Break(absl::DeadlineExceededError(
          absl::StrCat("NCCL waited too long for other ranks in ", what)));
    }
    absl::SleepFor(kPollEvery);
  }
}

void NcclWatchdog::Destroy(NcclComm& comm) {
  // Peers may be gone: an end that takes too long becomes an abort.
  const absl::Status finalized =
      Use(comm, "ending a group",
          [](ncclComm_t c) { return ncclCommFinalize(c); });
  if (!finalized.ok()) return AwaitAbort();
  ncclComm_t own;
  {
    MutexLock lock(&mutex_);
    own = std::exchange(comm.comm, nullptr);
    comms_.erase(std::remove_if(comms_.begin(), comms_.end(),
                                [&](const std::shared_ptr<NcclComm>& c) {
                                  return c.get() == &comm;
                                }),
                 comms_.end());
  }
  if (own != nullptr) (void)ncclCommDestroy(own);
}

void NcclWatchdog::Expect(std::shared_ptr<CudaEvent> event, std::string late) {
  MutexLock lock(&mutex_);
  if (!status_.ok()) return;
  expected_.push_back(
      {std::move(event), SystemClock().Now() + call_timeout_, std::move(late)});
}

absl::Status NcclWatchdog::Await(const CudaEvent& event) {
  while (true) {
    const cudaError_t state = event.state();
    if (state == cudaSuccess) return status();
    if (state != cudaErrorNotReady) {
      return Break(CudaStatus(state, "a collective call"));
    }
    RETURN_IF_ERROR(status());  // Watch() enforces the deadline.
    absl::SleepFor(kPollEvery);
  }
}

absl::Status NcclWatchdog::Look() {
  RETURN_IF_ERROR(control_.status());
  MutexLock lock(&mutex_);
  for (const std::shared_ptr<NcclComm>& comm : comms_) {
    ncclResult_t state = ncclSuccess;
    RETURN_IF_ERROR(
        NcclStatus(ncclCommGetAsyncError(comm->comm, &state), "asking it"));
    RETURN_IF_ERROR(NcclStatus(state, "a call that was queued"));
  }
  for (auto it = expected_.begin(); it != expected_.end();) {
    const cudaError_t state = it->event->state();
    if (state == cudaSuccess) {
      it = expected_.erase(it);
      continue;
    }
    if (state != cudaErrorNotReady) {
      return CudaStatus(state, "a collective call");
    }
    if (SystemClock().Now() > it->deadline) {
      return absl::DeadlineExceededError(it->late);
    }
    ++it;
  }
  return absl::OkStatus();
}

void NcclWatchdog::Watch() {
  (void)cudaSetDevice(device_);
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (stopping_) return;
      condition_.WaitWithTimeout(&mutex_, kLookEvery);
      if (stopping_) return;
      if (!status_.ok()) continue;
    }
    const absl::Status status = Look();
    if (!status.ok()) (void)Break(status);
  }
}

}  // namespace atl::collective
