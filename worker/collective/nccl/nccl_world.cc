#include "worker/collective/nccl/nccl_world.h"

#include <nccl.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "worker/collective/call.h"
#include "worker/collective/nccl/nccl_watchdog.h"
#include "worker/collective/nccl/steps.h"

namespace atl::collective {
namespace {

ncclDataType_t ToType(DataType type) {
  switch (type) {
    case DataType::kF32:
      return ncclFloat32;
    case DataType::kBf16:
      return ncclBfloat16;
    case DataType::kF64:
      return ncclFloat64;
    case DataType::kBytes:
      break;
  }
  return ncclUint8;
}

ncclRedOp_t ToOperation(Reduction reduction) {
  return reduction == Reduction::kMax ? ncclMax : ncclSum;
}

ncclConfig_t Config() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

// A device that starts the calls of several groups in another order than its
// peers may lack the room to run those that they wait for. Every rank makes its
// calls in one order (MakeRankGroups), and NCCL keeps that order if it is told
// to. It reads this once, and other threads read the environment, so it is set
// before main.
const bool kOrdersLaunches =
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0) == 0;

struct CallWords {
  int64_t kind, type, reduction, root, count;
};

class NcclCollective final : public Collective {
 public:
  // `control` is the group's CPU collective: `own`, or the world's.
  NcclCollective(std::shared_ptr<NcclWatchdog> watchdog, NcclOptions options,
                 std::shared_ptr<NcclComm> comm, Collective& control,
                 std::unique_ptr<Collective> own, std::string name)
      : watchdog_(std::move(watchdog)),
        options_(options),
        comm_(std::move(comm)),
        own_control_(std::move(own)),
        control_(control),
        rank_(control.rank()),
        size_(control.size()),
        name_(std::move(name)) {}

  absl::Status Init() {
    RETURN_IF_ERROR(
        CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                   "making a stream"));
    RETURN_IF_ERROR(
        CudaStatus(cudaMalloc(reinterpret_cast<void**>(&token_), sizeof(float)),
                   "allocating a barrier's number"));
    return CudaStatus(cudaMemsetAsync(token_, 0, sizeof(float), stream_),
                      "zeroing a barrier's number");
  }

  ~NcclCollective() override {
    (void)cudaSetDevice(options_.device);
    if (last_ != nullptr) watchdog_->Await(*last_).IgnoreError();
    watchdog_->Destroy(*comm_);
    if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_);
    (void)cudaFree(token_);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& name() const override { return name_; }

  absl::Status Run(const Call& call) override {
    ASSIGN_OR_RETURN(const std::shared_ptr<CudaEvent> done, Queue(call));
    if (call.kind == CallKind::kBarrier) return watchdog_->Await(*done);
    return WaitFor(*done);
  }

  Pending Start(Call call) override {
    return Pending(std::make_unique<Queued>(*this, Queue(call)));
  }

  absl::StatusOr<std::unique_ptr<Collective>> Split(
      int color, absl::string_view name) override {
    RETURN_IF_ERROR(watchdog_->status());
    // NCCL does not split a communicator while its calls run.
    if (last_ != nullptr) RETURN_IF_ERROR(watchdog_->Await(*last_));
    auto control = control_.Split(color, name);
    if (!control.ok()) return watchdog_->Break(control.status());
    const absl::Status split =
        watchdog_->Use(*comm_, "making a group", [&](ncclComm_t c) {
          ncclConfig_t config = Config();
          return ncclCommSplit(c, color < 0 ? NCCL_SPLIT_NOCOLOR : color, rank_,
                               &comm_->made, &config);
        });
    if (!split.ok()) {
      watchdog_->AwaitAbort();
      return split;
    }
    std::shared_ptr<NcclComm> made = watchdog_->AdoptSplit(*comm_);
    if (color < 0) return std::unique_ptr<Collective>();
    if (made == nullptr) {
      return watchdog_->Break(absl::UnavailableError("NCCL made no group"));
    }
    auto group = std::make_unique<NcclCollective>(
        watchdog_, options_, std::move(made), **control, std::move(*control),
        absl::StrCat(name_, "/", name));
    const absl::Status ready = group->Init();
    if (!ready.ok()) return watchdog_->Break(ready);
    return group;
  }

  void Abort(absl::string_view reason) override {
    (void)watchdog_->Break(absl::UnavailableError(
        absl::StrCat("rank ", rank_, " of ", name_, " aborted: ", reason)));
  }
  absl::Status status() const override { return watchdog_->status(); }

 private:
  class Queued final : public Pending::Work {
   public:
    Queued(NcclCollective& group,
           absl::StatusOr<std::shared_ptr<CudaEvent>> done)
        : group_(group), done_(std::move(done)) {}
    absl::Status Wait() override {
      RETURN_IF_ERROR(done_.status());
      return group_.WaitFor(**done_);
    }

   private:
    NcclCollective& group_;
    const absl::StatusOr<std::shared_ptr<CudaEvent>> done_;
  };

  absl::Status WaitFor(const CudaEvent& done) {
    RETURN_IF_ERROR(watchdog_->status());
    return CudaStatus(
        cudaStreamWaitEvent(options_.compute_stream, done.get(), 0),
        "waiting for a collective call");
  }

  // Queues the call after the compute stream's work; the event marks its end.
  absl::StatusOr<std::shared_ptr<CudaEvent>> Queue(const Call& call) {
    RETURN_IF_ERROR(watchdog_->status());
    absl::Status status = ValidateCall(call, rank_, size_);
    if (status.ok() && options_.check_calls) status = CompareCalls(call);
    if (!status.ok()) {
      return watchdog_->Break(
          Annotate(status, absl::StrCat("rank ", rank_, " of ", name_)));
    }
    auto done = QueueValid(call);
    if (!done.ok()) return watchdog_->Break(done.status());
    last_ = *done;
    return done;
  }

  absl::StatusOr<std::shared_ptr<CudaEvent>> QueueValid(const Call& call) {
    RETURN_IF_ERROR(
        CudaStatus(cudaSetDevice(options_.device), "choosing a device"));
    ASSIGN_OR_RETURN(std::shared_ptr<CudaEvent> ready, CudaEvent::Create());
    RETURN_IF_ERROR(
        CudaStatus(cudaEventRecord(ready->get(), options_.compute_stream),
                   "recording an event"));
    RETURN_IF_ERROR(CudaStatus(cudaStreamWaitEvent(stream_, ready->get(), 0),
                               "waiting for computation"));
    const std::vector<Step> steps = PlanSteps(call, rank_, size_);
    RETURN_IF_ERROR(QueueCopies(call, steps));
    RETURN_IF_ERROR(watchdog_->Use(
        *comm_, Describe(call),
        [&](ncclComm_t comm) { return MakeSteps(call, steps, comm); }));
    ASSIGN_OR_RETURN(std::shared_ptr<CudaEvent> done, CudaEvent::Create());
    RETURN_IF_ERROR(CudaStatus(cudaEventRecord(done->get(), stream_),
                               "recording an event"));
    watchdog_->Expect(done, absl::StrCat("rank ", rank_, " of ", name_,
                                         " waited too long for other ranks in ",
                                         Describe(call)));
    return done;
  }

  // Apart from NCCL's steps: a full queue blocks it, and only an abort empties
  // the queue then, which Use would keep out.
  absl::Status QueueCopies(const Call& call, const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      if (step.kind != StepKind::kCopy) continue;
      const size_t bytes =
          static_cast<size_t>(step.count) * ElementBytes(call.type);
      RETURN_IF_ERROR(
          CudaStatus(cudaMemcpyAsync(step.out, step.in, bytes,
                                     cudaMemcpyDeviceToDevice, stream_),
                     "copying a rank's own part"));
    }
    return absl::OkStatus();
  }

  ncclResult_t MakeSteps(const Call& call, const std::vector<Step>& steps,
                         ncclComm_t comm) {
    if (call.kind == CallKind::kBarrier) {
      return ncclAllReduce(token_, token_, 1, ncclFloat32, ncclSum, comm,
                           stream_);
    }
    if (steps.empty()) return ncclSuccess;
    ncclResult_t result = ncclGroupStart();
    for (const Step& step : steps) {
      if (result != ncclSuccess && result != ncclInProgress) break;
      result = MakeStep(call, step, comm);
    }
    const ncclResult_t ended = ncclGroupEnd();
    const bool failed = result != ncclSuccess && result != ncclInProgress;
    return failed ? result : ended;
  }

  ncclResult_t MakeStep(const Call& call, const Step& step, ncclComm_t comm) {
    const ncclDataType_t type = ToType(call.type);
    const ncclRedOp_t operation = ToOperation(call.reduction);
    const size_t count = static_cast<size_t>(step.count);
    switch (step.kind) {
      case StepKind::kBroadcast:
        return ncclBroadcast(step.in, step.out, count, type, call.root, comm,
                             stream_);
      case StepKind::kReduce:
        return ncclReduce(step.in, step.out, count, type, operation, call.root,
                          comm, stream_);
      case StepKind::kAllReduce:
        return ncclAllReduce(step.in, step.out, count, type, operation, comm,
                             stream_);
      case StepKind::kReduceScatter:
        return ncclReduceScatter(step.in, step.out, count, type, operation,
                                 comm, stream_);
      case StepKind::kAllGather:
        return ncclAllGather(step.in, step.out, count, type, comm, stream_);
      case StepKind::kSend:
        return ncclSend(step.in, count, type, step.peer, comm, stream_);
      case StepKind::kReceive:
        return ncclRecv(step.out, count, type, step.peer, comm, stream_);
      case StepKind::kCopy:
        return ncclSuccess;  // QueueCopies
    }
    return ncclInternalError;
  }

  absl::Status CompareCalls(const Call& call) {
    const CallWords own = {
        static_cast<int64_t>(call.kind), static_cast<int64_t>(call.type),
        static_cast<int64_t>(call.reduction), call.root, call.count};
    std::vector<CallWords> all(size_);
    RETURN_IF_ERROR(control_.Run(
        Call::AllGather(DataType::kBytes, &own, all.data(), sizeof(own))));
    for (int r = 0; r < size_; ++r) {
      const CallWords& other = all[r];
      if (other.kind == own.kind && other.type == own.type &&
          other.reduction == own.reduction && other.root == own.root &&
          other.count == own.count) {
        continue;
      }
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", rank_, " makes ", Describe(call), ", but rank ", r,
          " makes ",
          DescribeCall(static_cast<CallKind>(other.kind),
                       static_cast<DataType>(other.type),
                       static_cast<Reduction>(other.reduction),
                       static_cast<int>(other.root), other.count)));
    }
    return absl::OkStatus();
  }

  // Shared with the rank's other groups.
  const std::shared_ptr<NcclWatchdog> watchdog_;
  const NcclOptions options_;
  const std::shared_ptr<NcclComm> comm_;
  const std::unique_ptr<Collective> own_control_;  // Null: the world's.
  Collective& control_;
  const int rank_, size_;
  const std::string name_;
  cudaStream_t stream_ = nullptr;
  float* token_ = nullptr;           // A barrier sums it.
  std::shared_ptr<CudaEvent> last_;  // The end of the newest call.
};

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> JoinNccl(
    Collective& control, const NcclOptions& options) {
  RETURN_IF_ERROR(
      CudaStatus(cudaSetDevice(options.device), "choosing a device"));
  auto watchdog = std::make_shared<NcclWatchdog>(control, options.device,
                                                 options.call_timeout);
  ncclUniqueId id = {};
  if (control.rank() == 0) {
    const absl::Status status =
        NcclStatus(ncclGetUniqueId(&id), "making the world's id");
    if (!status.ok()) return watchdog->Break(status);
  }
  const absl::Status told =
      control.Run(Call::Broadcast(DataType::kBytes, &id, sizeof(id), 0));
  if (!told.ok()) return watchdog->Break(told);
  auto comm = std::make_shared<NcclComm>();
  ncclConfig_t config = Config();
  const absl::Status begun =
      NcclStatus(ncclCommInitRankConfig(&comm->comm, control.size(), id,
                                        control.rank(), &config),
                 "joining the world");
  if (!begun.ok()) return watchdog->Break(begun);
  watchdog->Adopt(comm);
  RETURN_IF_ERROR(watchdog->Use(*comm, "joining the world",
                                [](ncclComm_t) { return ncclSuccess; }));
  auto world = std::make_unique<NcclCollective>(
      watchdog, options, std::move(comm), control, nullptr, "world");
  const absl::Status ready = world->Init();
  if (!ready.ok()) return watchdog->Break(ready);
  return world;
}

}  // namespace atl::collective
