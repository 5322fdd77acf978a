// A world whose ranks are threads of this process.

#pragma once

#include <memory>
#include <vector>

#include "worker/collective/collective.h"
#include "worker/collective/group.h"

namespace atl::collective {

// Thread-compatible.
class LocalWorld {
 public:
  // `size` >= 1.
  explicit LocalWorld(int size, const WorldOptions& options = {});
  LocalWorld(const LocalWorld&) = delete;
  LocalWorld& operator=(const LocalWorld&) = delete;

  // One Collective a rank, each for one thread; call once. These and all groups
  // split from them must end before this object.
  std::vector<std::unique_ptr<Collective>> TakeRanks();

 private:
  World world_;
  std::vector<std::unique_ptr<Collective>> ranks_;
};

}  // namespace atl::collective
