// How the contributions of a sealed round become one outer gradient.
//
// Pure. Immutable after it is made, so thread-safe. One file a choice.
//
//   n    contributions of the round
//   x_i  contribution i, f32, in the order of the seal: (slot, seq)
//   w_i  its weight, f32: normalised in f64 and rounded by the coordinator; or
//        its coefficient, if the rule has a verdict
//   g    merged outer gradient, f32
//
// Two kinds of rules. A sum g = sum(w_i x_i) takes one contribution at a time:
// the weighted mean, and RDA, norm clip, centred clip, Krum and MDA, whose
// coefficients are the coordinator's verdict on what GramSums adds up here. An
// order rule (trimmed mean, median) wants all contributions of a tile at once.
//
// Element-wise: any cut of a fragment into tiles gives the same bits.

#ifndef SERVER_CORE_MERGE_MERGE_RULE_H_
#define SERVER_CORE_MERGE_MERGE_RULE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "atoll/v1/run.pb.h"
#include "base/codec/codec.h"

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
  // Sorts every column of rows[0 .. row_count), each of n finite elements.
  virtual void SortRows(int64_t n, int row_count, float* const* rows) const = 0;
  // mean = (rows[0] + rows[1] + ...) / row_count, from the left.
  virtual void MeanOfRows(int64_t n, int row_count, const float* const* rows,
                          float* mean) const = 0;
  // Inner products in f64, one fixed tree each: <0, 0>, <1, 0>, <1, 1>, ...
  virtual void Products(int64_t n, int row_count, const float* const* rows,
                        double* products) const = 0;
};

class MergeRule {
 public:
  virtual ~MergeRule() = default;

  // For people and logs: "weighted mean".
  virtual absl::string_view name() const = 0;

  // True: MergeRows with all contributions of a tile. False: Add, one by one.
  virtual bool takes_rows() const { return false; }

  // Takes a tile of contribution number `index` into `g`, both of `n` elements.
  // Called once for each contribution, in their order; after the last, `g` is
  // the merged tile. Before the first, `g` may hold anything.
  // Requires: !takes_rows().
  virtual void Add(const MergeKernels& kernels, int index, float weight,
                   int64_t n, const float* x, float* g) const;

  // Add with a block that is encoded by `codec`; same products, same sums. `g`
  // has the block's element count. After a fault it is unspecified.
  // Requires: !takes_rows().
  virtual codec::BlockFault AddEncoded(const codec::Codec& codec, int index,
                                       float weight, absl::string_view encoded,
                                       absl::Span<float> g) const;

  // Merges the tiles of all contributions, each of `n` elements, into `g`.
  // What is in the tiles afterwards is of no use.
  // Requires: takes_rows(), contribution_count >= 1.
  virtual void MergeRows(const MergeKernels& kernels, int64_t n,
                         int contribution_count, float* const* x,
                         float* g) const;
};

// What a rule needs to know of a round before it can be merged.
enum class MergeNeeds {
  kNothing,   // SEAL says all.
  kNorms,     // A verdict, on the norms that came with STORED.
  kProducts,  // A verdict, on the inner products of GramSums.
};
MergeNeeds FindNeeds(const v1::MergeSpec& spec);

// The rule of a run.
std::unique_ptr<MergeRule> MakeMergeRule(const v1::OuterSpec& spec);

// One maker a choice; each is defined in the file of its name.

// g = w_0 x_0 + w_1 x_1 + ..., from the left.
std::unique_ptr<MergeRule> MakeWeightedSum();
// Without the `trim_count` least and greatest values of every element; as many
// as leave one, if there are too few. Requires: trim_count >= 0.
std::unique_ptr<MergeRule> MakeTrimmedMean(int trim_count);
// The middle value of every element, or half the sum of the two middle ones.
std::unique_ptr<MergeRule> MakeMedian();

}  // namespace atl::server

#endif  // SERVER_CORE_MERGE_MERGE_RULE_H_
