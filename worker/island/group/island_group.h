// The processes of one island, as one of them sees them: what process 0 has
// decided, and what became of it everywhere.
//
// Process 0 leads. It sends what is to be done, all do it on what they hold,
// and all learn what went wrong anywhere. Each lane is a stream of its own, for
// one thread at a time; stop() and lost() may be called from any.
//
// The first error of the group itself (a process died, or did not come in time)
// ends it for all: the attempt of the island is over. Every call then returns
// lost(): UNAVAILABLE with the reason ISLAND_PROCESS_LOST, and who it was.

#ifndef WORKER_ISLAND_GROUP_ISLAND_GROUP_H_
#define WORKER_ISLAND_GROUP_ISLAND_GROUP_H_

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/sync/mutex.h"
#include "worker/collective/collective.h"
#include "worker/core/action.h"

namespace atl::worker {

inline constexpr char kProcessLost[] = "ISLAND_PROCESS_LOST";

// True if `status` is that of a group that has ended.
bool IsProcessLost(const absl::Status& status);

class IslandGroup {
 public:
  using Lanes = std::array<std::unique_ptr<collective::Collective>, kLaneCount>;

  // One group a lane, each with the processes of the island as its ranks.
  explicit IslandGroup(Lanes lanes);

  int process_index() const { return index_; }
  int process_count() const { return count_; }
  bool leads() const { return index_ == 0; }

  // Of process 0: `message` goes to all others, which Receive() it.
  absl::Status Send(Lane lane, absl::string_view message);
  absl::StatusOr<std::string> Receive(Lane lane);

  // All give a message and get those of all, by process.
  absl::StatusOr<std::vector<std::string>> Exchange(Lane lane,
                                                    absl::string_view message);

  // All say how it went here. OK if it went well everywhere; else the first
  // error that is not CANCELLED, or one that is: the same for all, but that
  // who made it gets it as it was. Carries who wants to stop, too.
  absl::Status Agree(Lane lane, const absl::Status& status);

  // This process wants to stop: 1 cleanly, 2 at once.
  void RequestStop(int level);
  // The most that any process wanted when it was last asked.
  int stop() const { return stop_; }

  // OK until the group has ended.
  absl::Status lost() const;
  // Ends it for all, with `reason`.
  void Abort(absl::string_view reason);

 private:
  collective::Collective& At(Lane lane) {
    return *lanes_[static_cast<size_t>(lane)];
  }
  // Notes how the group ended; returns what all calls return from then on.
  absl::Status Lost(const absl::Status& status);

  const int index_;
  const int count_;
  Lanes lanes_;
  std::atomic<int> own_stop_{0};
  std::atomic<int> stop_{0};
  mutable Mutex mutex_;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::worker

#endif  // WORKER_ISLAND_GROUP_ISLAND_GROUP_H_
