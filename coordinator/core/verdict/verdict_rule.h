// What a round's statistics come to: the coefficients c_i of its contributions,
// so that the merge is sum(c_i x_i).
//
// Pure. Immutable after it is made, so thread-safe. One file a choice. In f64,
// every sum in the order of the contributions, and rounded to f32 at the end,
// so that the coefficients are a function of the seal and of exact sums, which
// do not depend on the shards.
//
//   n     contributions of the seal
//   x_i   contribution i, in the order of the seal
//   w_i   its weight: normalised
//   G     Gram matrix of a group of tensors: G_ij = <x_i, x_j>, exact

#ifndef COORDINATOR_CORE_VERDICT_VERDICT_RULE_H_
#define COORDINATOR_CORE_VERDICT_VERDICT_RULE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"
#include "base/layout/gram.h"

namespace atl::coordinator {

// What a verdict is made from.
struct VerdictInput {
  std::vector<double> weights;  // w_i.
  std::vector<double> norms;    // |x_i| over the whole fragment.
  // One a group of tensors; empty for a rule that needs norms only.
  std::vector<GramMatrix> grams;
  // Newest last: the median norm of each of the fragment's newest rounds that
  // were committed.
  std::vector<double> past_median_norms;
};

struct Coefficients {
  // One row of n a group.
  std::vector<std::vector<float>> rows;
  // One sentence for people: "takes contribution 2".
  std::string reason;
};

class VerdictRule {
 public:
  virtual ~VerdictRule() = default;

  // For people and logs: "krum".
  virtual absl::string_view name() const = 0;
  // Whether VerdictInput.grams is read.
  virtual bool needs_products() const = 0;
  // FAILED_PRECONDITION: there are too few contributions for the rule.
  // INTERNAL: a coefficient is not finite.
  virtual absl::StatusOr<Coefficients> Decide(
      const VerdictInput& input) const = 0;
};

// The rule of a run; nullptr if its merge needs no verdict.
std::unique_ptr<VerdictRule> MakeVerdictRule(const v1::MergeSpec& spec);

// Contributions that a round of such a run asks for, at most: Gram matrices
// and coefficients grow with n^2 and n, and reports and plans hold them.
inline constexpr int kVerdictContributionsMax = 64;
// Islands that MDA bears at most: its search doubles with each.
inline constexpr int kMdaByzantineMax = 8;
// Medians that a fragment remembers: the longest window of the clips.
inline constexpr size_t kMedianNormsMax = 64;
// A contribution whose squared norm is not below it is refused in a run whose
// merge needs a verdict: 2^52, so that no sum of products overflows (a norm of
// 6.7e7).
inline constexpr double kVerdictNormSquaredMax = 4503599627370496.0;

// One maker a choice; each is defined in the file of its name.
std::unique_ptr<VerdictRule> MakeRda();
std::unique_ptr<VerdictRule> MakeNormClip(const v1::MergeSpec& spec);
std::unique_ptr<VerdictRule> MakeCentredClip(const v1::MergeSpec& spec);
std::unique_ptr<VerdictRule> MakeKrum(const v1::MergeSpec& spec);
std::unique_ptr<VerdictRule> MakeMinimumDiameterAveraging(
    const v1::MergeSpec& spec);

// --- For those that choose ----------------------------------------------------

// |x_i - x_j|^2, exact.
ExactSum SquaredDistance(const GramMatrix& gram, int i, int j);

// --- For the clips -----------------------------------------------------------

// The median; of an even number the mean of the two middle values. Requires:
// not empty.
double ComputeMedian(std::vector<double> values);

// `clip_factor` times the median of the newest `clip_round_count` round
// medians, this round's among them.
double ClipBound(const v1::MergeSpec& spec, const VerdictInput& input);

// How much of a vector of length `norm` is left: min(1, bound / norm).
double ClipScale(double bound, double norm);

// Rounds to f32. INTERNAL: a value is not finite.
absl::StatusOr<std::vector<float>> RoundRow(const std::vector<double>& row);

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_VERDICT_VERDICT_RULE_H_
