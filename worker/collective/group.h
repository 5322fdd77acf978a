// The state that the ranks of one process share for a world and each of its
// groups: barriers, waits and the first error.
//
// Thread-safe. No bytes move here: a rank publishes its call, and other ranks
// of the process read and write its buffers between two barriers.

#pragma once

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
  // From the start of a call until its end, > 0.
  absl::Duration call_timeout = absl::Minutes(10);
};

// The first error of a world, shared by all groups of a process; outlives them.
class World {
 public:
  // `processes[r]` is the process of rank r; `process` is this one. `remote`
  // (null if there are no other processes) must outlive the world.
  World(std::vector<int> processes, int process, const WorldOptions& options);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Call once, before the first call of a rank.
  void SetRemote(RemoteWorld* remote) { remote_ = remote; }

  const std::vector<int>& processes() const { return processes_; }
  int process() const { return process_; }
  const WorldOptions& options() const { return options_; }
  RemoteWorld* remote() const { return remote_; }
  // Spins on a flag before a sleep; 0 if ranks exceed processors.
  int spin_count() const { return spin_count_; }

  // Ends the world for all ranks, with `tell` in other processes too. Only the
  // first call counts. Returns its error. Do not hold a group's lock.
  absl::Status Break(const absl::Status& status, bool tell = true)
      ABSL_LOCKS_EXCLUDED(mutex_);

  bool broken() const { return broken_.load(std::memory_order_acquire); }
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);

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

  mutable Mutex mutex_;  // Locked before a group's.
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

  // `waker` wakes rank `rank` if it waits outside this class; null clears it.
  void SetWaker(int rank, std::function<void()> waker);

  // Publishes the call of `rank`, its `call_number`-th, waits for all ranks of
  // the process, and compares their calls. Until End or Withdraw the rank may
  // touch the calls and buffers of the others.
  //
  // INVALID_ARGUMENT: they differ. UNAVAILABLE: a rank left. DEADLINE_EXCEEDED.
  absl::Status Post(int rank, const Call* call, int64_t call_number,
                    absl::Time deadline);

  // Waits for all ranks of the process. Errors as for Post.
  absl::Status Barrier(int rank, absl::Time deadline);

  // The last Barrier of a call: the rank no longer touches others' buffers.
  absl::Status End(int rank, absl::Time deadline);

  // After an error, once the world has ended: returns when no rank of the
  // process touches the call and buffers of `rank`, which then may be freed.
  void Withdraw(int rank) ABSL_LOCKS_EXCLUDED(mutex_);

  // The published call of rank `rank` of this process, between Post and End.
  const Call& call(int rank) const { return *slots_[rank].call; }

  // Does the transfers between `rank` and ranks of this process. The receiver
  // copies; a send ends after the copy.
  //
  // INVALID_ARGUMENT: lengths differ, or the peer is in another call that
  // cannot end before this one. Other errors as for Post.
  class LocalTransfers;

  // `rank` makes no call after its `call_count`-th.
  void MarkLeft(int rank, int64_t call_count) ABSL_LOCKS_EXCLUDED(mutex_);

  // OK, or why `rank` cannot end its call: the world ended or a rank left.
  absl::Status Interrupted(int rank) ABSL_LOCKS_EXCLUDED(mutex_);

  // The group `name` of `world_ranks`; the first caller creates it.
  std::shared_ptr<Group> Child(const std::string& name,
                               const std::vector<int>& world_ranks)
      ABSL_LOCKS_EXCLUDED(mutex_);

  void WakeAll() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Slot {
    // Barriers passed. Fields written before a barrier may be read after it.
    alignas(64) std::atomic<uint64_t> step{0};
    const Call* call = nullptr;
    // Guarded by mutex_.
    int64_t call_number = 0;
    bool in_collective = false;
    bool touches_others = false;
    bool has_left = false;
    int64_t left_after = 0;
    std::function<void()> waker;
  };
  // A send that no receiver of this process has copied yet.
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
  // By (from, to), in order.
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Posted>>> posted_
      ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::weak_ptr<Group>> children_ ABSL_GUARDED_BY(mutex_);
};

class Group::LocalTransfers {
 public:
  // Offers the sends among `transfers` to ranks of this process.
  LocalTransfers(Group* group, int rank,
                 const std::vector<Transfer>& transfers);
  // Withdraws the sends that are left, after any copy in progress.
  ~LocalTransfers();

  // Receives, and waits until all sends are copied.
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
