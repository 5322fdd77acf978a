#include "worker/engine/ops/cuda/plan/recipe_cache.h"

#include <memory>
#include <utility>

#include "gtest/gtest.h"

namespace atl::engine::cuda {
namespace {

TEST(RecipeCacheTest, KeepsNoMoreThanItsBoundAndTheNewestAlways) {
  constexpr int kCountMax = 5;
  RecipeCache<int, std::shared_ptr<int>> cache(kCountMax);
  std::weak_ptr<int> made[23];
  for (int key = 0; key < 23; ++key) {
    EXPECT_EQ(cache.Find(key), nullptr);
    auto value = std::make_shared<int>(10 * key);
    made[key] = value;
    EXPECT_EQ(**cache.Add(key, std::move(value)), 10 * key);
    int kept_count = 0;
    for (int other = 0; other <= key; ++other) {
      const std::shared_ptr<int>* const found = cache.Find(other);
      EXPECT_EQ(found != nullptr, !made[other].expired()) << other;
      if (found == nullptr) continue;
      EXPECT_EQ(**found, 10 * other);
      ++kept_count;
    }
    EXPECT_EQ(kept_count, key % kCountMax + 1);
  }
}

}  // namespace
}  // namespace atl::engine::cuda
