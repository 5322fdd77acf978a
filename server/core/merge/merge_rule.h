// How the contributions of a sealed round become one outer gradient.
//
// Pure. Immutable after it is made, so thread-safe. One file a choice.
//
//   x_i  contribution i, f32, in the order of the seal: (slot, seq)
//   w_i  its weight, f32: normalised in f64 and rounded by the coordinator
//   g    merged outer gradient, f32
//
// Element-wise: any cut of a fragment into tiles gives the same bits.

#ifndef SERVER_CORE_MERGE_MERGE_RULE_H_
#define SERVER_CORE_MERGE_MERGE_RULE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"

namespace atl::server {

// The arithmetic, given by the caller: server/kernels/merge_kernels.h, or the
// plain definitions in a test.
class MergeKernels {
 public:
  virtual ~MergeKernels() = default;
  // sum = weight * x.
  virtual void Scale(int64_t n, float weight, const float* x,
                     float* sum) const = 0;
  // sum = sum + weight * x: multiply, round, add, round.
  virtual void Accumulate(int64_t n, float weight, const float* x,
                          float* sum) const = 0;
};

class MergeRule {
 public:
  virtual ~MergeRule() = default;

  // For people and logs: "weighted mean".
  virtual absl::string_view name() const = 0;

  // Takes a tile of contribution number `index` into `g`, both of `n` elements.
  // Called once for each contribution, in their order; after the last, `g` is
  // the merged tile. Before the first, `g` may hold anything.
  virtual void Add(const MergeKernels& kernels, int index, float weight,
                   int64_t n, const float* x, float* g) const = 0;
};

// The rule of a run.
std::unique_ptr<MergeRule> MakeMergeRule(const v1::OuterSpec& spec);

// g = w_0 x_0 + w_1 x_1 + ..., from the left.
std::unique_ptr<MergeRule> MakeWeightedMean();

}  // namespace atl::server

#endif  // SERVER_CORE_MERGE_MERGE_RULE_H_
