// Contributions that are saved and may have to be pushed.
//
// Who trains puts them in and takes them out; who pushes holds one while it
// does. Thread-safe.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync/mutex.h"
#include "worker/core/contribution_encoder.h"

namespace atl::worker {

class Outbox {
 public:
  using Item = std::shared_ptr<const EncodedContribution>;

  // What is there from now on. The buffers of what is not any more are reused.
  // `pushed`: shards may have some of what was not there before.
  void Set(std::vector<Item> items, bool pushed = false);
  // nullptr: it is not there (any more).
  Item Find(int32_t fragment, int64_t seq) const;
  // True the first time it is asked of an item that no shard has any of.
  bool TakeNew(const Item& item);

  // An empty contribution, with the memory of one that is gone if there is one.
  std::shared_ptr<EncodedContribution> MakeItem();

 private:
  mutable Mutex mutex_;
  std::vector<Item> items_ ABSL_GUARDED_BY(mutex_);
  std::vector<Item> new_ ABSL_GUARDED_BY(mutex_);  // Of them.
  std::vector<Item> spares_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::worker
