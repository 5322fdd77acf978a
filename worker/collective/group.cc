#include "worker/collective/group.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/machine/limits.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"

namespace atl::collective {
namespace {

// About 20 us, if every rank has its own processor.
constexpr int kSpinCount = 400;

int SpinCount(const std::vector<int>& processes, int process) {
  const auto ranks = std::count(processes.begin(), processes.end(), process);
  return ranks <= ProcessorCount() ? kSpinCount : 0;
}

absl::Status Late(absl::string_view group, int rank, int peer,
                  absl::string_view what) {
  return absl::DeadlineExceededError(absl::StrCat("rank ", rank, " of ", group,
                                                  " waited too long for rank ",
                                                  peer, " in: ", what));
}

}  // namespace

World::World(std::vector<int> processes, int process,
             const WorldOptions& options)
    : processes_(std::move(processes)),
      process_(process),
      options_(options),
      spin_count_(SpinCount(processes_, process)) {}

absl::Status World::Break(const absl::Status& status, bool tell) {
  absl::Status first;
  bool is_first = false;
  {
    MutexLock lock(&mutex_);
    if (status_.ok()) {
      status_ = status;
      is_first = true;
    }
    first = status_;
  }
  if (!is_first) return first;
  // Tell other processes before any rank here wakes: otherwise they would see
  // closed connections before the cause.
  if (tell && remote_ != nullptr) remote_->TellBroken(first);
  MutexLock lock(&mutex_);
  broken_.store(true, std::memory_order_release);
  for (Group* group : groups_) group->WakeAll();
  return first;
}

absl::Status World::status() const {
  MutexLock lock(&mutex_);
  return status_;
}

void World::MarkLeft(const std::string& name, int rank, int64_t call_count) {
  MutexLock lock(&mutex_);
  for (Group* group : groups_) {
    if (group->name() == name && rank >= 0 && rank < group->size()) {
      group->MarkLeft(rank, call_count);
    }
  }
}

Group::Group(World* world, std::string name, std::vector<int> world_ranks)
    : world_(world),
      name_(std::move(name)),
      world_ranks_(std::move(world_ranks)),
      slots_(world_ranks_.size()) {
  for (int rank = 0; rank < size(); ++rank) {
    local_.push_back(world->processes()[world_ranks_[rank]] ==
                     world->process());
    if (local_.back()) local_ranks_.push_back(rank);
  }
  MutexLock lock(&world_->mutex_);
  world_->groups_.insert(this);
}

Group::~Group() {
  MutexLock lock(&world_->mutex_);
  world_->groups_.erase(this);
}

void Group::SetWaker(int rank, std::function<void()> waker) {
  MutexLock lock(&mutex_);
  slots_[rank].waker = std::move(waker);
}

void Group::WakeAll() {
  MutexLock lock(&mutex_);
  WakeAllLocked();
}

void Group::WakeAllLocked() {
  condition_.SignalAll();
  for (Slot& slot : slots_) {
    if (slot.waker) slot.waker();
  }
}

void Group::MarkLeft(int rank, int64_t call_count) {
  MutexLock lock(&mutex_);
  slots_[rank].has_left = true;
  slots_[rank].left_after = call_count;
  WakeAllLocked();
}

absl::Status Group::Left(int rank) const {
  const Slot& own = slots_[rank];
  if (!own.in_collective) return absl::OkStatus();
  for (int peer = 0; peer < size(); ++peer) {
    const Slot& slot = slots_[peer];
    if (slot.has_left && slot.left_after < own.call_number) {
      return absl::UnavailableError(absl::StrCat("rank ", peer, " left ", name_,
                                                 " after ", slot.left_after,
                                                 " calls"));
    }
  }
  return absl::OkStatus();
}

absl::Status Group::Interrupted(int rank) {
  if (world_->broken()) return world_->status();
  MutexLock lock(&mutex_);
  return Left(rank);
}

absl::Status Group::PassBarrier(int rank, absl::Time deadline,
                                absl::FunctionRef<void(Slot&)> publish) {
  Slot& own = slots_[rank];
  const uint64_t step = own.step.load(std::memory_order_relaxed) + 1;
  {
    MutexLock lock(&mutex_);
    // A rank withdraws after the world ended, so its buffers may be gone.
    if (world_->broken()) return absl::UnavailableError("the world ended");
    publish(own);
    own.step.store(step, std::memory_order_release);
    condition_.SignalAll();
  }
  for (int peer : local_ranks_) {
    const std::atomic<uint64_t>& other = slots_[peer].step;
    for (int i = 0; i < world_->spin_count(); ++i) {
      if (other.load(std::memory_order_acquire) >= step) break;
      _mm_pause();
    }
    if (other.load(std::memory_order_acquire) >= step) continue;
    MutexLock lock(&mutex_);
    while (other.load(std::memory_order_acquire) < step) {
      if (world_->broken()) return absl::UnavailableError("the world ended");
      RETURN_IF_ERROR(Left(rank));
      const absl::Duration left = deadline - SystemClock().Now();
      if (left <= absl::ZeroDuration()) {
        return Late(name_, rank, peer, Describe(*own.call));
      }
      condition_.WaitWithTimeout(&mutex_, left);
    }
  }
  return absl::OkStatus();
}

absl::Status Group::Compare(int rank) const {
  // Every rank compares all with the first, so all find the same error.
  const int first = local_ranks_.front();
  const Call& a = *slots_[first].call;
  for (int peer : local_ranks_) {
    const Call& b = *slots_[peer].call;
    if (a.kind != b.kind || a.type != b.type || a.reduction != b.reduction ||
        a.root != b.root || a.count != b.count) {
      return absl::InvalidArgumentError(absl::StrCat(
          "call ", slots_[first].call_number, " of ", name_, ": rank ", first,
          " makes ", Describe(a), ", but rank ", peer, " makes ", Describe(b)));
    }
    if (a.count >= 0) continue;
    for (int other : local_ranks_) {
      const Call& c = *slots_[other].call;
      if (b.send_counts[other] == c.receive_counts[peer]) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "call ", slots_[first].call_number, " of ", name_, ": ", Describe(b),
          ": rank ", peer, " sends ", b.send_counts[other], " to rank ", other,
          ", which expects ", c.receive_counts[peer]));
    }
  }
  return absl::OkStatus();
}

absl::Status Group::Post(int rank, const Call* call, int64_t call_number,
                         absl::Time deadline) {
  RETURN_IF_ERROR(PassBarrier(rank, deadline, [&](Slot& slot) {
    slot.call = call;
    slot.call_number = call_number;
    slot.in_collective = true;
    slot.touches_others = true;
  }));
  return Compare(rank);
}

absl::Status Group::Barrier(int rank, absl::Time deadline) {
  return PassBarrier(rank, deadline, [](Slot&) {});
}

absl::Status Group::End(int rank, absl::Time deadline) {
  return PassBarrier(rank, deadline,
                     [](Slot& slot) { slot.touches_others = false; });
}

void Group::Withdraw(int rank) {
  MutexLock lock(&mutex_);
  slots_[rank].touches_others = false;
  condition_.SignalAll();
  // Bounded: the others copy one piece, or check the world when they wait.
  while (std::any_of(slots_.begin(), slots_.end(),
                     [](const Slot& slot) { return slot.touches_others; })) {
    condition_.Wait(&mutex_);
  }
}

std::shared_ptr<Group> Group::Child(const std::string& name,
                                    const std::vector<int>& world_ranks) {
  // Outside the lock, because the world's lock comes first. Keeps one at most.
  auto made = std::make_shared<Group>(world_, name, world_ranks);
  MutexLock lock(&mutex_);
  std::weak_ptr<Group>& child = children_[name];
  std::shared_ptr<Group> found = child.lock();
  if (found != nullptr) return found;
  child = made;
  return made;
}

Group::LocalTransfers::LocalTransfers(Group* group, int rank,
                                      const std::vector<Transfer>& transfers)
    : group_(group), rank_(rank), transfers_(transfers) {
  MutexLock lock(&group_->mutex_);
  group_->slots_[rank].in_collective = false;
  for (const Transfer& transfer : transfers) {
    if (!transfer.is_send || !group_->local_[transfer.peer]) continue;
    auto posted = std::make_shared<Posted>(Posted{&transfer});
    group_->posted_[{rank, transfer.peer}].push_back(posted);
    sends_.emplace_back(transfer.peer, std::move(posted));
  }
  if (!sends_.empty()) group_->condition_.SignalAll();
}

Group::LocalTransfers::~LocalTransfers() {
  MutexLock lock(&group_->mutex_);
  for (auto& [peer, posted] : sends_) {
    auto& queue = group_->posted_[{rank_, peer}];
    queue.erase(std::remove(queue.begin(), queue.end(), posted), queue.end());
    while (posted->copying) group_->condition_.Wait(&group_->mutex_);
  }
}

absl::Status Group::LocalTransfers::Hopeless(int peer) const {
  if (group_->world_->broken()) return absl::UnavailableError("world ended");
  const Slot& other = group_->slots_[peer];
  const Slot& own = group_->slots_[rank_];
  if (other.has_left) {
    return absl::UnavailableError(absl::StrCat("rank ", peer, " left ",
                                               group_->name_, " after ",
                                               other.left_after, " calls"));
  }
  // The peer waits for us in a later call while we wait for it here.
  if (other.call_number > own.call_number) {
    return absl::InvalidArgumentError(absl::StrCat(
        "call ", other.call_number, " of ", group_->name_, ": rank ", peer,
        " makes ", Describe(*other.call), ", but rank ", rank_, " makes ",
        DescribeCall(CallKind::kTransfers, DataType::kBytes, Reduction::kSum, 0,
                     0),
        " with it"));
  }
  return absl::OkStatus();
}

absl::Status Group::LocalTransfers::ReceiveOne(const Transfer& transfer,
                                               absl::Time deadline) {
  std::shared_ptr<Posted> posted;
  {
    MutexLock lock(&group_->mutex_);
    auto& queue = group_->posted_[{transfer.peer, rank_}];
    while (queue.empty()) {
      RETURN_IF_ERROR(Hopeless(transfer.peer));
      const absl::Duration left = deadline - SystemClock().Now();
      if (left <= absl::ZeroDuration()) {
        return Late(group_->name_, rank_, transfer.peer, "receive");
      }
      group_->condition_.WaitWithTimeout(&group_->mutex_, left);
    }
    posted = queue.front();
    if (posted->transfer->byte_count != transfer.byte_count) {
      return absl::InvalidArgumentError(absl::StrCat(
          "in ", group_->name_, ": rank ", transfer.peer, " sends ",
          posted->transfer->byte_count, " bytes, but rank ", rank_,
          " receives ", transfer.byte_count));
    }
    queue.pop_front();
    posted->copying = true;
  }
  if (transfer.byte_count > 0) {
    std::memcpy(transfer.data, posted->transfer->data, transfer.byte_count);
  }
  MutexLock lock(&group_->mutex_);
  posted->copying = false;
  posted->taken = true;
  group_->condition_.SignalAll();
  return absl::OkStatus();
}

absl::Status Group::LocalTransfers::Finish(absl::Time deadline) {
  for (const Transfer& transfer : transfers_) {
    if (transfer.is_send || !group_->local_[transfer.peer]) continue;
    RETURN_IF_ERROR(ReceiveOne(transfer, deadline));
  }
  MutexLock lock(&group_->mutex_);
  for (auto& [peer, posted] : sends_) {
    while (!posted->taken) {
      RETURN_IF_ERROR(Hopeless(peer));
      const absl::Duration left = deadline - SystemClock().Now();
      if (left <= absl::ZeroDuration()) {
        return Late(group_->name_, rank_, peer, "send");
      }
      group_->condition_.WaitWithTimeout(&group_->mutex_, left);
    }
  }
  return absl::OkStatus();
}

}  // namespace atl::collective
