#include "worker/island/outbox.h"

#include <algorithm>
#include <utility>

namespace atl::worker {

namespace {

bool Has(const std::vector<Outbox::Item>& items, const Outbox::Item& item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

}  // namespace

void Outbox::Set(std::vector<Item> items, bool pushed) {
  MutexLock lock(&mutex_);
  std::vector<Item> still_new;
  for (const Item& item : items) {
    if (Has(items_, item) ? Has(new_, item) : !pushed) {
      still_new.push_back(item);
    }
  }
  new_ = std::move(still_new);
  for (Item& old : items_) {
    if (!Has(items, old)) spares_.push_back(std::move(old));
  }
  items_ = std::move(items);
  item_count_max_ = std::max(item_count_max_, items_.size());
  if (spares_.size() > item_count_max_) {
    spares_.erase(spares_.begin(), spares_.end() - item_count_max_);
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

bool Outbox::TakeNew(const Item& item) {
  MutexLock lock(&mutex_);
  const auto found = std::find(new_.begin(), new_.end(), item);
  if (found == new_.end()) return false;
  new_.erase(found);
  return true;
}

std::shared_ptr<EncodedContribution> Outbox::MakeItem() {
  auto made = std::make_shared<EncodedContribution>();
  MutexLock lock(&mutex_);
  for (auto spare = spares_.begin(); spare != spares_.end(); ++spare) {
    // With one owner, no push uses it and Find() no longer returns it.
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
