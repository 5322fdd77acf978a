// Maps the shards that ranks compute with to the elements that processes hold,
// and back. Pure. Thread-safe after construction.
//
// Held: equal parts of the model's flat order, one per rank, each in whole
// blocks of 4096 elements from a parameter's start. A process holds those of
// its ranks, so saves and pushes do not depend on the mesh. Computed with:
// shards of slices of units (rank_layout.h). Elements travel by all-to-all,
// unit by unit, so buffers are as large as one unit. Between two ranks they
// travel in the model's order.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/parallel/layout/mesh_options.h"
#include "worker/engine/parallel/layout/rank_layout.h"

namespace atl::engine {

inline constexpr int64_t kHeldBlockElements = 4096;

// Boundaries of held parts, rank_count + 1, from 0. A part may be empty.
std::vector<int64_t> HeldBoundaries(const ParameterLayout& layout,
                                    int rank_count);

class ReshardPlan {
 public:
  // Consecutive elements on this rank's side of an exchange.
  struct Run {
    int span = 0;        // Span of the shard; unused on the held side.
    int64_t offset = 0;  // In that shard, or in this rank's held part.
    int64_t count = 0;
    bool is_counted = true;  // The run also travels back.
    int64_t begin = 0;       // First element in the model.
  };
  // The runs that this rank exchanges with each rank for one unit of the model.
  struct UnitExchange {
    ParameterSpan elements;  // The unit's elements in the model.
    // By rank p: the runs of this rank's shards that p holds.
    std::vector<std::vector<Run>> shards;
    // By rank p: the runs of this rank's held part that are in p's shards.
    std::vector<std::vector<Run>> held;
  };

  ReshardPlan(const ModelConfig& config, const ParameterLayout& layout,
              const MeshOptions& options, int rank);

  // The same for `elements` alone: rising, disjoint spans of the model. All
  // ranks need the same ones.
  ReshardPlan Part(absl::Span<const ParameterSpan> elements) const;

  const ParameterSpan& held() const { return held_; }
  const std::vector<UnitExchange>& units() const { return units_; }
  // Largest number of elements that one unit's exchange sends or receives.
  int64_t exchange_count_max() const { return exchange_count_max_; }

 private:
  ReshardPlan() = default;

  ParameterSpan held_;
  std::vector<UnitExchange> units_;
  int64_t exchange_count_max_ = 0;
};

}  // namespace atl::engine
