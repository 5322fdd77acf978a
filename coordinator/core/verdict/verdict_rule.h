// Computes a round's coefficients c_i, so that its merge is sum(c_i x_i).
//
// Pure. Immutable after construction, so thread-safe. One file per rule. Rules
// compute in f64, sum in the order of the contributions, and round to f32 at
// the end. So the coefficients depend only on the seal and on exact sums, which
// do not depend on the shards.
//
//   n     contributions of the seal
//   x_i   contribution i, in the order of the seal
//   w_i   its normalised weight
//   G     Gram matrix of a group of tensors: G_ij = <x_i, x_j>, exact

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"
#include "base/layout/gram.h"
#include "base/layout/layout.h"

namespace atl::coordinator {

// The statistics of a round.
struct VerdictInput {
  std::vector<double> weights;  // w_i.
  std::vector<double> norms;    // |x_i| over the whole fragment.
  // One per group of tensors. Rules that need only norms do not read them.
  std::vector<GramMatrix> grams;
  // Median norms of the fragment's newest committed rounds, newest last.
  std::vector<double> past_median_norms;
};

struct Coefficients {
  // One row of n coefficients for each group.
  std::vector<std::vector<float>> rows;
  // A sentence for logs: "takes contribution 2".
  std::string reason;
};

class VerdictRule {
 public:
  virtual ~VerdictRule() = default;

  // For logs: "krum".
  virtual absl::string_view name() const = 0;
  // FAILED_PRECONDITION: there are too few contributions for the rule.
  // INTERNAL: a coefficient is not finite.
  virtual absl::StatusOr<Coefficients> Decide(
      const VerdictInput& input) const = 0;
};

// The rule of a run; nullptr if its merge needs no verdict.
std::unique_ptr<VerdictRule> MakeVerdictRule(const v1::MergeSpec& spec);

// Limit of the contributions that such a round asks for. Gram matrices grow
// with n^2 and coefficients with n; reports and plans hold them.
inline constexpr int kVerdictContributionsMax = 64;
// Limit of one shard's statistics of all fragments, to keep reports small.
inline constexpr int64_t kStatisticsBytesMax = int64_t{2} << 20;
// The largest count of a round's contributions within both limits, >= 1;
// INT64_MAX if the merge rule needs no verdict. `layout` is the one of `spec`.
int64_t ContributionsMax(const RunLayout& layout, const v1::RunSpec& spec);
// Hostile islands that MDA tolerates at most: each doubles its search.
inline constexpr int kMdaByzantineMax = 8;
// Medians that a fragment keeps: the longest window of the clips.
inline constexpr size_t kMedianNormsMax = 64;
// 2^52. A run with verdicts refuses contributions whose squared norm is not
// below this (norm 6.7e7), so that no sum of products overflows.
inline constexpr double kVerdictNormSquaredMax = 4503599627370496.0;

// One maker per rule, defined in the rule's file.
std::unique_ptr<VerdictRule> MakeRda();
std::unique_ptr<VerdictRule> MakeNormClip(const v1::MergeSpec& spec);
std::unique_ptr<VerdictRule> MakeCentredClip(const v1::MergeSpec& spec);
std::unique_ptr<VerdictRule> MakeKrum(const v1::MergeSpec& spec);
std::unique_ptr<VerdictRule> MakeMinimumDiameterAveraging(
    const v1::MergeSpec& spec);

// --- For rules that select contributions -------------------------------------

// |x_i - x_j|^2, exact.
ExactSum SquaredDistance(const GramMatrix& gram, int i, int j);

// --- For the clips -----------------------------------------------------------

// The median of an even count is the mean of the two middle values. Requires:
// not empty.
double ComputeMedian(std::vector<double> values);

// `clip_factor` times the median of the newest `clip_round_count` round
// medians, this round's included.
double ClipBound(const v1::MergeSpec& spec, const VerdictInput& input);

// The factor that shortens a vector of length `norm`: min(1, bound / norm).
double ClipScale(double bound, double norm);

// Rounds to f32. INTERNAL: a value is not finite.
absl::StatusOr<std::vector<float>> RoundRow(const std::vector<double>& row);

}  // namespace atl::coordinator
