// The live merges of one shard, at most one for each fragment, and the
// contributions that they merge.
//
// Thread-safe. Start and Prepare block on the disk, and come from one thread.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sync/mutex.h"
#include "server/core/live_set.h"
#include "server/core/shard_machine.h"
#include "server/live_merge/live_merger.h"
#include "server/live_merge/receive_budget.h"
#include "server/store/run_store.h"
#include "server/waiters/push_waiters.h"

namespace atl::server {

// The contribution and live merger that take the blocks of a stream.
struct LivePlace {
  std::shared_ptr<Contribution> contribution;
  std::shared_ptr<LiveMerger> live_merger;  // Null: the set is not known yet.
  int index = 0;                            // In the live merger's set.
};

class LiveRounds {
 public:
  // All must outlive it.
  LiveRounds(RunStore& store, const OuterOptimizer& optimizer,
             const MergeRule& rule, PushWaiters& waiters, ReceiveBudget& budget)
      : store_(store),
        optimizer_(optimizer),
        rule_(rule),
        waiters_(waiters),
        budget_(budget) {}

  // Merges `set` from now on. The blocks that the fragment's earlier merge has
  // taken in are lost: their streams push again. An empty set merges nothing.
  //
  // UNAVAILABLE: a contribution of the set is no longer bound. Else as
  // LiveMerger::Create.
  absl::Status Start(int32_t fragment, const LiveSet& set);
  // Publishes the version that the fragment's merge has made.
  //
  // FAILED_PRECONDITION: the merge is not one of `seal`. Else as
  // LiveMerger::Publish.
  absl::StatusOr<PreparedFact> Prepare(const v1::Seal& seal);
  // The merge is committed. Returns its memory, to be freed outside of locks.
  std::shared_ptr<const void> End(int32_t fragment);
  // Gives all merges up. Returns false while another thread still uses one that
  // was made here, and with it the store.
  bool EndAll();
  // Finds the place of the blocks of `key`; no live merger before its set.
  LivePlace Find(const ContributionKey& key) const;

 private:
  // Counts the live mergers that are not destroyed yet.
  struct Count {
    Mutex mutex;
    int count ABSL_GUARDED_BY(mutex) = 0;
  };
  class Counted;
  struct Round {
    std::shared_ptr<LiveMerger> merger;
    std::vector<std::shared_ptr<Contribution>> contributions;  // As in its set.
  };

  // Takes the fragment's merge out.
  Round Take(int32_t fragment);

  RunStore& store_;
  const OuterOptimizer& optimizer_;
  const MergeRule& rule_;
  PushWaiters& waiters_;
  ReceiveBudget& budget_;
  const std::shared_ptr<Count> mergers_ = std::make_shared<Count>();

  mutable Mutex mutex_;
  std::map<int32_t, Round> rounds_ ABSL_GUARDED_BY(mutex_);  // By fragment.
};

}  // namespace atl::server
