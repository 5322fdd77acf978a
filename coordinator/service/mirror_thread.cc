#include "coordinator/service/mirror_thread.h"

#include <future>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/failpoint/failpoint.h"
#include "base/mirror/cluster_object.h"
#include "base/mirror/mirror_names.h"
#include "base/mirror/mirror_writer.h"
#include "base/mirror/run_owner.h"
#include "base/obs/log.h"
#include "base/obs/log_pace.h"
#include "base/random_id/random_id.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "base/time/proto_time.h"
#include "google/protobuf/util/message_differencer.h"

namespace atl::coordinator {
namespace {

// Runs `decide` on the loop, and waits until its records are durable.
template <typename Result>
absl::StatusOr<Result> Call(
    EventLoop& loop,
    std::function<absl::StatusOr<Result>(Coordinator&, absl::Time)> decide) {
  auto answer = std::make_shared<std::promise<absl::StatusOr<Result>>>();
  std::future<absl::StatusOr<Result>> result = answer->get_future();
  loop.Post<Result>(std::move(decide),
                    [answer](absl::StatusOr<Result> decided) {
                      answer->set_value(std::move(decided));
                    });
  return result.get();
}

// True if two cluster objects differ at most in their place and time.
bool AreSame(storage::v1::ClusterObject a, storage::v1::ClusterObject b) {
  for (storage::v1::ClusterObject* const object : {&a, &b}) {
    object->clear_log_index();
    object->clear_create_time();
  }
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

// A new core, or a new epoch of the run, is told again who the owner is.
std::pair<int64_t, int64_t> Epochs(const storage::v1::RunOwner& own) {
  return {own.run_epoch(), own.coordinator_epoch()};
}

// The error of a run whose owner in the mirror is another one.
absl::Status OtherOwner(const storage::v1::RunOwner& own,
                        const storage::v1::RunOwner& owner) {
  if (owner.cluster_id() == own.cluster_id()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a later log of this cluster owns the run's checkpoints in the mirror, "
        "under run epoch ", owner.run_epoch(), ": this coordinator is an older "
        "copy; stop it"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "cluster ", owner.cluster_id(), " owns the run's checkpoints in the mirror "
      "since ", absl::FormatTime(absl::RFC3339_sec,
                                 FromProto(owner.create_time()),
                                 absl::UTCTimeZone()),
      ": this one copies and removes none. `atoll run cancel ", own.run_id(),
      "` ends the run here; or end it there, and `atoll run restore ",
      own.run_id(), "` makes this cluster the owner again"));
}

}  // namespace

MirrorThread::MirrorThread(Options options)
    : options_(std::move(options)), waiting_(options_.waiting) {
  waiting_.cancelled = [this] { return is_stopping_.load(); };
}

void MirrorThread::Start(EventLoop& loop) {
  thread_ = std::thread([this, &loop] { Run(loop); });
}

void MirrorThread::Notify() {
  MutexLock lock(&mutex_);
  has_notice_ = true;
  changed_.SignalAll();
}

void MirrorThread::Stop() {
  {
    MutexLock lock(&mutex_);
    is_stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

bool MirrorThread::AwaitNotice() {
  MutexLock lock(&mutex_);
  while (!has_notice_ && !is_stopping_) {
    const absl::Duration left = cluster_time_ - SystemClock().Now();
    if (is_cluster_due_ && left <= absl::ZeroDuration()) break;
    if (is_cluster_due_) {
      changed_.WaitWithTimeout(&mutex_, left);
    } else {
      changed_.Wait(&mutex_);
    }
  }
  is_cluster_due_ |= has_notice_;
  has_notice_ = false;
  return !is_stopping_;
}

void MirrorThread::AwaitRetry() {
  MutexLock lock(&mutex_);
  changed_.AwaitWithTimeout(&mutex_, options_.retry_delay,
                            [this] { return is_stopping_.load(); });
  has_notice_ = true;
}

void MirrorThread::Run(EventLoop& loop) {
  LogPace pace;
  while (AwaitNotice()) {
    UpdateCluster(loop);
    if (is_stopping_) return;
    absl::Status failure = TakeRuns(loop);
    if (is_stopping_) return;
    const absl::StatusOr<std::vector<MirrorWork>> works = Ask(loop);
    failure.Update(works.status());
    for (size_t i = 0; works.ok() && i < works->size(); ++i) {
      const MirrorWork& work = (*works)[i];
      const absl::Status result = Complete(work);
      if (is_stopping_) return;
      absl::Status ended = Tell(loop, work.owner, work.manifest.pin(), result);
      ended.Update(result);
      if (ended.ok()) {
        Notify();  // The run's next one.
        continue;
      }
      // With another owner the core stops asking.
      if (other_epoch_ == 0) failure = ended;
      if (pace.IsDue(result.message(), SystemClock().Now())) {
        LOG(WARNING) << "run " << work.manifest.run_id() << ": checkpoint "
                     << work.manifest.pin().pin_id()
                     << " is not whole in the mirror: " << ended;
      }
    }
    if (!failure.ok()) AwaitRetry();
  }
}

absl::StatusOr<std::vector<MirrorWork>> MirrorThread::Ask(EventLoop& loop) {
  return Call<std::vector<MirrorWork>>(
      loop, [](Coordinator& coordinator, absl::Time now) {
        return coordinator.ListMirrorWork();
      });
}

void MirrorThread::UpdateCluster(EventLoop& loop) {
  if (!is_cluster_due_ || SystemClock().Now() < cluster_time_) return;
  const absl::Status status = WriteClusterIfChanged(loop);
  is_cluster_due_ = !status.ok();
  cluster_time_ = SystemClock().Now() + (status.ok() ? options_.cluster_period
                                                     : options_.retry_delay);
  if (!status.ok() && !is_stopping_ && status.code() != cluster_failure_) {
    LOG(WARNING) << "the cluster object in the mirror is not the newest: "
                 << status;
  }
  cluster_failure_ = status.code();
}

absl::Status MirrorThread::WriteClusterIfChanged(EventLoop& loop) {
  ASSIGN_OR_RETURN(
      std::optional<storage::v1::ClusterObject> object,
      Call<std::optional<storage::v1::ClusterObject>>(
          loop,
          [](Coordinator& coordinator,
             absl::Time now) -> std::optional<storage::v1::ClusterObject> {
            if (!coordinator.CheckWritable().ok()) return std::nullopt;
            return coordinator.DescribeForMirror();
          }));
  if (!object.has_value() || AreSame(*object, written_)) {
    return absl::OkStatus();
  }
  *object->mutable_create_time() = ToProto(SystemClock().Now());
  RETURN_IF_ERROR(WriteCluster(*object));
  written_ = *std::move(object);
  return absl::OkStatus();
}

absl::Status MirrorThread::WriteCluster(
    const storage::v1::ClusterObject& object) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectStore> store,
                   options_.open(waiting_));
  RETURN_IF_ERROR(CheckOnce(*store));
  failpoint::Hit("coordinator.cluster_object.before");
  RETURN_IF_ERROR(mirror::WriteCluster(*store, object));
  failpoint::Hit("coordinator.cluster_object.after");
  return mirror::CollectClusters(*store,
                                 {object.cluster_id(), object.log_index()})
      .status();
}

absl::Status MirrorThread::Tell(EventLoop& loop,
                                const storage::v1::RunOwner& own,
                                const v1::Pin& pin,
                                const absl::Status& result) {
  event::MirrorEnded ended = {.run_epoch = own.run_epoch(),
                              .pin_id = pin.pin_id(),
                              .commit_seq = pin.commit_seq(),
                              .error = std::string(result.message()),
                              .owner_epoch = other_epoch_};
  return Call<bool>(
             loop,
             [ended, run_id = own.run_id(), run_uid = own.run_uid()](
                 Coordinator& coordinator,
                 absl::Time now) -> absl::StatusOr<bool> {
               const absl::StatusOr<RunMachine*> run =
                   coordinator.FindRun(run_id);
               // It was deleted, and perhaps another has its id.
               if (!run.ok() || (*run)->state().run_uid() != run_uid) {
                 return false;
               }
               RETURN_IF_ERROR((*run)->Step(ended, now).status());
               return true;
             })
      .status();
}

absl::Status MirrorThread::TakeRuns(EventLoop& loop) {
  ASSIGN_OR_RETURN(std::vector<storage::v1::RunOwner> owners,
                   Call<std::vector<storage::v1::RunOwner>>(
                       loop, [](Coordinator& coordinator, absl::Time now) {
                         return coordinator.ListMirrorOwners();
                       }));
  std::erase_if(owners, [&](const storage::v1::RunOwner& own) {
    const auto known = owned_epochs_.find(own.run_uid());
    return known != owned_epochs_.end() && known->second == Epochs(own);
  });
  absl::Status failure;
  for (storage::v1::RunOwner& own : owners) {
    const absl::Status taken = OwnOne(own);
    if (is_stopping_) return taken;
    if (taken.ok() || other_epoch_ > 0) {
      owned_epochs_[own.run_uid()] = Epochs(own);
    }
    if (taken.ok() && untaken_.erase(own.run_uid()) == 0) continue;
    if (!taken.ok()) {
      untaken_.insert(own.run_uid());
      LOG_ABOUT(WARNING, own.run_id())
          << "run " << own.run_id() << ": " << taken;
    }
    RETURN_IF_ERROR(Tell(loop, own, v1::Pin(), taken));
    // Runs after it are not held up.
    if (other_epoch_ == 0) failure.Update(taken);
  }
  return failure;
}

absl::Status MirrorThread::OwnOne(storage::v1::RunOwner& own) {
  other_epoch_ = 0;
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectStore> store,
                   options_.open(waiting_));
  RETURN_IF_ERROR(CheckOnce(*store));
  failpoint::Hit("coordinator.run_owner.before");
  const absl::Status owned = Own(*store, own);
  failpoint::Hit("coordinator.run_owner.after");
  return owned;
}

absl::Status MirrorThread::Own(ObjectStore& store,
                               storage::v1::RunOwner& own) {
  other_epoch_ = 0;
  *own.mutable_create_time() = ToProto(SystemClock().Now());
  ASSIGN_OR_RETURN(const storage::v1::RunOwner owner,
                   mirror::TakeOwnership(store, own));
  if (mirror::IsOwner(owner, own)) {
    own.set_since_run_epoch(owner.since_run_epoch());
    return absl::OkStatus();
  }
  other_epoch_ = owner.run_epoch();
  return OtherOwner(own, owner);
}

absl::Status MirrorThread::CheckOnce(ObjectStore& store) {
  if (is_checked_) return absl::OkStatus();
  RETURN_IF_ERROR(CheckCreatesOnce(store, absl::StrCat("probe-", RandomId())));
  is_checked_ = true;
  return absl::OkStatus();
}

absl::Status MirrorThread::Complete(const MirrorWork& work) {
  other_epoch_ = 0;
  storage::v1::MirrorManifest manifest = work.manifest;
  *manifest.mutable_create_time() = ToProto(SystemClock().Now());
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectStore> store,
                   options_.open(waiting_));
  RETURN_IF_ERROR(CheckOnce(*store));
  storage::v1::RunOwner owner = work.owner;
  RETURN_IF_ERROR(Own(*store, owner));
  failpoint::Hit("coordinator.mirror_manifest.before");
  RETURN_IF_ERROR(mirror::WriteManifest(*store, manifest));
  failpoint::Hit("coordinator.mirror_manifest.after");
  std::set<mirror::CheckpointPlace> kept;
  for (const auto& [run_epoch, commit_seq] : work.kept) {
    kept.insert({manifest.run_uid(), run_epoch, commit_seq});
  }
  RETURN_IF_ERROR(mirror::CollectRun(*store, owner, kept).status());
  failpoint::Hit("coordinator.mirror_collect.after");
  return absl::OkStatus();
}

}  // namespace atl::coordinator
