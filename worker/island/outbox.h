// Contributions of the local checkpoint that may have to be pushed.
// Thread-safe: a pusher shares ownership of the item that it pushes.

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

  // Replaces the contents. `pushed`: shards may have parts of added items.
  void Set(std::vector<Item> items, bool pushed = false);
  // Returns null if the item is not here.
  Item Find(int32_t fragment, int64_t seq) const;
  // True on the first call for an item that no shard has any part of.
  bool TakeNew(const Item& item);

  // Makes an empty contribution; reuses the memory of a removed one if it can.
  std::shared_ptr<EncodedContribution> MakeItem();

 private:
  mutable Mutex mutex_;
  std::vector<Item> items_ ABSL_GUARDED_BY(mutex_);
  std::vector<Item> new_ ABSL_GUARDED_BY(mutex_);     // Subset of items_.
  // Removed items, to be used again: at most as many as there were at once.
  std::vector<Item> spares_ ABSL_GUARDED_BY(mutex_);
  size_t item_count_max_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace atl::worker
