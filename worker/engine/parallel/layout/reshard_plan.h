// From what the ranks of a mesh compute with to what its processes hold, and
// back.
//
// Pure. Thread-safe once made.
//
// Held: the model's flat order in equal parts, one a rank, each whole blocks of
// 4096 elements from a parameter's start; a process holds those of its ranks.
// So what is saved and pushed has nothing to do with the mesh. Computed with:
// shards of slices of units (rank_layout.h). Elements travel from one to the
// other by all-to-all, unit by unit, so that the buffers are those of one unit.
// Between two ranks they travel in the model's order.

#pragma once

#include <cstdint>
#include <vector>

#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/parallel/layout/mesh_options.h"
#include "worker/engine/parallel/layout/rank_layout.h"

namespace atl::engine {

inline constexpr int64_t kHeldBlockElements = 4096;

// Boundaries of what ranks hold, rank_count + 1, from 0 to element_count. Some
// may hold nothing.
std::vector<int64_t> HeldBoundaries(const ParameterLayout& layout,
                                    int rank_count);

class ReshardPlan {
 public:
  // Consecutive elements on this rank's side of a way.
  struct Run {
    int span = 0;        // Of its shards; not used where it holds.
    int64_t offset = 0;  // In that shard, or in what the rank holds.
    int64_t count = 0;
    bool is_counted = true;  // Travels back too.
  };
  // What this rank exchanges with each rank, for one unit of the model.
  struct UnitExchange {
    // With rank p: its part of this rank's shards, by what p holds.
    std::vector<std::vector<Run>> shards;
    // With rank p: its part of what this rank holds, by p's shards.
    std::vector<std::vector<Run>> held;
  };

  ReshardPlan(const ModelConfig& config, const ParameterLayout& layout,
              const MeshOptions& options, int rank);

  // What this rank holds of the model.
  const ParameterSpan& held() const { return held_; }
  const std::vector<UnitExchange>& units() const { return units_; }
  // Elements that a unit's exchange sends or receives at most.
  int64_t exchange_count_max() const { return exchange_count_max_; }

 private:
  ParameterSpan held_;
  std::vector<UnitExchange> units_;
  int64_t exchange_count_max_ = 0;
};

}  // namespace atl::engine
