// The statistics of a sealed round on one shard: inner products of its
// contributions, one Gram matrix a group of tensors. Pure. Thread-compatible:
// each thread fills its own. Sums are exact, so they can be added in any order.

#pragma once

#include <cstdint>
#include <vector>

#include "base/layout/gram.h"

namespace atl::server {

class GramSums {
 public:
  // Starts at 0: `group_count` matrices of `contribution_count` contributions.
  // With `diagonal_only` only squared norms are summed.
  GramSums(int group_count, int contribution_count,
           bool diagonal_only = false);

  // Adds one block (n elements, at most one block of the grid) of every
  // contribution to `group`. Each block's product is rounded once.
  // Requires: 0 <= group < group_count.
  void AddBlock(int group, int64_t n, const float* const* x);
  // Adds another thread's sums. Requires: made with the same counts.
  GramSums& operator+=(const GramSums& other);

  // By group.
  const std::vector<GramMatrix>& grams() const { return grams_; }

 private:
  const bool diagonal_only_;
  std::vector<GramMatrix> grams_;
  std::vector<double> products_;  // The products of one block.
};

}  // namespace atl::server
