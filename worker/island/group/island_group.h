// The processes of one island, as one of them sees them. Process 0 leads: it
// sends each command, all processes run it on the part of the model that they
// hold, and all learn of any error.
//
// Each lane is an independent stream, for one thread at a time. Any thread may
// call stop() and lost().
//
// The first error of the group itself (a process died, or did not come in time)
// ends the island's attempt for all. Every call then returns lost():
// UNAVAILABLE with the reason ISLAND_PROCESS_LOST, and the process.

#pragma once

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

  // One group a lane; its ranks are the processes of the island.
  explicit IslandGroup(Lanes lanes);

  int process_index() const { return index_; }
  int process_count() const { return count_; }
  bool leads() const { return index_ == 0; }

  // Process 0 sends `message` to all others, which call Receive().
  absl::Status Send(Lane lane, absl::string_view message);
  absl::StatusOr<std::string> Receive(Lane lane);

  // Every process gives a message and gets all messages, by process.
  absl::StatusOr<std::vector<std::string>> Exchange(Lane lane,
                                                    absl::string_view message);

  // Every process gives its status. OK if all are OK; otherwise all get the
  // first error that is neither CANCELLED nor DataAwaited, or one that is. The
  // failed process gets its own error unchanged. Also exchanges stop requests.
  absl::Status Agree(Lane lane, const absl::Status& status);

  // Requests a stop of the island: 1 cleanly, 2 at once.
  void RequestStop(int level);
  // The highest stop request of any process, as of the last Agree().
  int stop() const { return stop_; }

  // OK until the group has ended.
  absl::Status lost() const;
  // Ends the group for all, with `reason`.
  void Abort(absl::string_view reason);

 private:
  collective::Collective& At(Lane lane) {
    return *lanes_[static_cast<size_t>(lane)];
  }
  // Records the end of the group; returns the status of all later calls.
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
