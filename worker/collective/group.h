// What the ranks of one process share of a world and of each of its groups:
// who waits for what, and how it ends.
//
// Thread-safe. No bytes move here: a rank publishes its call, and others of the
// process read and write its buffers between two barriers.

#ifndef WORKER_COLLECTIVE_GROUP_H_
#define WORKER_COLLECTIVE_GROUP_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/sync/mutex.h"
#include "worker/collective/call.h"
#include "worker/collective/remote.h"

namespace atl::collective {

class Group;

struct WorldOptions {
  // From the start of a call until it has ended, > 0.
  absl::Duration call_timeout = absl::Minutes(10);
};

// The fate that all groups of a process share. Outlives them.
class World {
 public:
  // `processes[r]` is the process of rank r; `process` is this one. `remote`
  // (null: there are no others) outlives it.
  World(std::vector<int> processes, int process, const WorldOptions& options);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Before the first call, once.
  void SetRemote(RemoteWorld* remote) { remote_ = remote; }

  const std::vector<int>& processes() const { return processes_; }
  int process() const { return process_; }
  const WorldOptions& options() const { return options_; }
  RemoteWorld* remote() const { return remote_; }
  // Looks at a flag so many times before it sleeps: 0 where there are more
  // ranks than processors.
  int spin_count() const { return spin_count_; }

  // Ends the world for all, the other processes too if `tell`. The first call
  // counts. Returns what it ended with. Not under a lock of a group.
  absl::Status Break(const absl::Status& status, bool tell = true)
      ABSL_LOCKS_EXCLUDED(mutex_);

  bool broken() const { return broken_.load(std::memory_order_acquire); }
  // OK while it has not ended.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);

  // `rank` of the group `name`, in another process, left.
  void MarkLeft(const std::string& name, int rank, int64_t call_count)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class Group;

  const std::vector<int> processes_;
  const int process_;
  const WorldOptions options_;
  const int spin_count_;
  RemoteWorld* remote_ = nullptr;
  std::atomic<bool> broken_{false};

  mutable Mutex mutex_;  // Taken before a group's.
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::set<Group*> groups_ ABSL_GUARDED_BY(mutex_);
};

class Group {
 public:
  // Rank i of the group is rank world_ranks[i] of the world.
  Group(World* world, std::string name, std::vector<int> world_ranks);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  World& world() const { return *world_; }
  const std::string& name() const { return name_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  bool is_local(int rank) const { return local_[rank]; }
  const std::vector<int>& local_ranks() const { return local_ranks_; }
  bool has_remote() const { return local_ranks_.size() < world_ranks_.size(); }

  // What wakes rank `rank` where it does not wait here. Cleared with null.
  void SetWaker(int rank, std::function<void()> waker);

  // Publishes the call of `rank`, its `call_number`-th, waits for those of all
  // ranks of the process, and compares them. From then until End or Withdraw
  // the rank may touch the calls and buffers of the others.
  //
  // INVALID_ARGUMENT: they differ. UNAVAILABLE: a rank left. DEADLINE_EXCEEDED.
  absl::Status Post(int rank, const Call* call, int64_t call_number,
                    absl::Time deadline);

  // Waits until all ranks of the process are here. Errors as for Post.
  absl::Status Barrier(int rank, absl::Time deadline);

  // The last Barrier of a call: the rank touches no other's buffers any more.
  absl::Status End(int rank, absl::Time deadline);

  // After an error, once the world has ended: waits until no rank of the
  // process touches the call and the buffers of `rank`. They may be freed then.
  void Withdraw(int rank) ABSL_LOCKS_EXCLUDED(mutex_);

  // What rank `rank` of this process published. Between Post and End.
  const Call& call(int rank) const { return *slots_[rank].call; }

  // Makes the transfers of `rank` with ranks of this process. The receiver
  // copies; a send has ended when it has.
  //
  // INVALID_ARGUMENT: lengths differ, or the peer is in another call, and in
  // none before which this one could end. Other errors as for Post.
  class LocalTransfers;

  // `rank` will make no call after its `call_count`-th.
  void MarkLeft(int rank, int64_t call_count) ABSL_LOCKS_EXCLUDED(mutex_);

  // What keeps `rank` from ever ending its current call: the world's end, or a
  // rank that has left. OK if nothing does.
  absl::Status Interrupted(int rank) ABSL_LOCKS_EXCLUDED(mutex_);

  // The group `name` of `world_ranks`, made by whoever asks first.
  std::shared_ptr<Group> Child(const std::string& name,
                               const std::vector<int>& world_ranks)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Wakes all that wait, to look at the world again.
  void WakeAll() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // What the ranks of a process know of one rank.
  struct Slot {
    // Barriers passed; what it published before them may be read after.
    alignas(64) std::atomic<uint64_t> step{0};
    const Call* call = nullptr;
    // All below under mutex_.
    int64_t call_number = 0;
    bool in_collective = false;
    bool touches_others = false;
    bool has_left = false;
    int64_t left_after = 0;
    std::function<void()> waker;
  };
  // A send that a receiver of this process has not copied yet.
  struct Posted {
    const Transfer* transfer;
    bool copying = false;
    bool taken = false;
  };

  absl::Status PassBarrier(int rank, absl::Time deadline,
                           absl::FunctionRef<void(Slot&)> publish);
  absl::Status Left(int rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeAllLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Compare(int rank) const;

  World* const world_;
  const std::string name_;
  const std::vector<int> world_ranks_;
  std::vector<bool> local_;
  std::vector<int> local_ranks_;

  std::vector<Slot> slots_;
  mutable Mutex mutex_;
  CondVar condition_;
  // By (from, to): sends in order.
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Posted>>> posted_
      ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::weak_ptr<Group>> children_ ABSL_GUARDED_BY(mutex_);
};

// See above. One batch of one rank; lives on its stack.
class Group::LocalTransfers {
 public:
  // Offers the sends among `transfers` to ranks of this process.
  LocalTransfers(Group* group, int rank,
                 const std::vector<Transfer>& transfers);
  // Takes back what was not taken, and waits for who copies just now.
  ~LocalTransfers();

  // Receives, and waits until all sends were taken.
  absl::Status Finish(absl::Time deadline);

 private:
  absl::Status ReceiveOne(const Transfer& transfer, absl::Time deadline);
  absl::Status Hopeless(int peer) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group_->mutex_);

  Group* const group_;
  const int rank_;
  const std::vector<Transfer>& transfers_;
  std::vector<std::pair<int, std::shared_ptr<Posted>>> sends_;
};

}  // namespace atl::collective

#endif  // WORKER_COLLECTIVE_GROUP_H_
