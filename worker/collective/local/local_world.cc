#include "worker/collective/local/local_world.h"

#include <numeric>
#include <utility>

#include "base/status/check.h"
#include "worker/collective/member.h"

namespace atl::collective {

LocalWorld::LocalWorld(int size, const WorldOptions& options)
    : world_(std::vector<int>(size, 0), /*process=*/0, options) {
  std::vector<int> world_ranks(size);
  std::iota(world_ranks.begin(), world_ranks.end(), 0);
  auto group = std::make_shared<Group>(&world_, "world", world_ranks);
  for (int rank = 0; rank < size; ++rank) {
    absl::StatusOr<std::unique_ptr<Collective>> member =
        Member::Create(group, rank);
    CHECK_OK(member);  // Dials nothing.
    ranks_.push_back(*std::move(member));
  }
}

std::vector<std::unique_ptr<Collective>> LocalWorld::TakeRanks() {
  return std::move(ranks_);
}

}  // namespace atl::collective
