#include "worker/api/outbox.h"

#include <algorithm>
#include <utility>

namespace atl::worker {

void Outbox::Set(std::vector<Item> items) {
  MutexLock lock(&mutex_);
  for (Item& old : items_) {
    if (std::find(items.begin(), items.end(), old) == items.end()) {
      spares_.push_back(std::move(old));
    }
  }
  items_ = std::move(items);
  // As many as are under way are enough.
  if (spares_.size() > items_.size()) {
    spares_.erase(spares_.begin(), spares_.end() - items_.size());
  }
}

Outbox::Item Outbox::Find(int32_t fragment, int64_t seq) const {
  MutexLock lock(&mutex_);
  for (const Item& item : items_) {
    if (item->info.key().fragment() == fragment &&
        item->info.key().seq() == seq) {
      return item;
    }
  }
  return nullptr;
}

std::shared_ptr<EncodedContribution> Outbox::MakeItem() {
  auto made = std::make_shared<EncodedContribution>();
  MutexLock lock(&mutex_);
  for (auto spare = spares_.begin(); spare != spares_.end(); ++spare) {
    // Nobody pushes it any more, and nobody else can find it.
    if (spare->use_count() > 1) continue;
    made->bytes =
        std::move(std::const_pointer_cast<EncodedContribution>(*spare)->bytes);
    made->bytes.clear();
    spares_.erase(spare);
    break;
  }
  return made;
}

}  // namespace atl::worker
