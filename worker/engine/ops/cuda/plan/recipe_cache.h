// A bounded map. Adding to a full map first clears it. Thread-compatible.
//
// For values that are cheap to make again. Most runs use few keys; in the
// others no key is likelier than another.

#pragma once

#include <cstddef>
#include <map>
#include <utility>

namespace atl::engine::cuda {

template <typename Key, typename Value>
class RecipeCache {
 public:
  explicit RecipeCache(size_t count_max) : count_max_(count_max) {}

  // Returns null if the key is unknown. Valid until the next Add.
  const Value* Find(const Key& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }

  // `key` must be absent. The result is valid until the next Add.
  const Value* Add(const Key& key, Value value) {
    if (values_.size() >= count_max_) values_.clear();
    return &values_.emplace(key, std::move(value)).first->second;
  }

 private:
  const size_t count_max_;
  std::map<Key, Value> values_;
};

}  // namespace atl::engine::cuda
