// Values by key, up to a bound: one more, and all others are forgotten.
//
// For what is made again at a small price: of most runs few keys are ever asked
// for, and of the others none is likelier than the next. No I/O.
// Thread-compatible.

#ifndef WORKER_ENGINE_OPS_CUDA_PLAN_RECIPE_CACHE_H_
#define WORKER_ENGINE_OPS_CUDA_PLAN_RECIPE_CACHE_H_

#include <cstddef>
#include <map>
#include <utility>

namespace atl::engine::cuda {

template <typename Key, typename Value>
class RecipeCache {
 public:
  // Keeps `count_max` (>= 1) values.
  explicit RecipeCache(size_t count_max) : count_max_(count_max) {}

  // Null if there is none. Of use until the next Add.
  const Value* Find(const Key& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }

  // Keeps `value`. Requires: there is none of `key`. Of use until the next Add.
  const Value* Add(const Key& key, Value value) {
    if (values_.size() >= count_max_) values_.clear();
    return &values_.emplace(key, std::move(value)).first->second;
  }

 private:
  const size_t count_max_;
  std::map<Key, Value> values_;
};

}  // namespace atl::engine::cuda

#endif  // WORKER_ENGINE_OPS_CUDA_PLAN_RECIPE_CACHE_H_
