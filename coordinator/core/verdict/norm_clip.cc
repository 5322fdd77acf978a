// Norm clipping (arXiv 1911.07963, norm thresholding): contributions longer
// than a bound are shortened to it; then all are averaged.
//
//   c_i = w_i min(1, bound / |x_i|)
//
// The bound is a multiple of the running median norm, because outer gradients
// shrink during a run. Less than half of the islands cannot move a median
// beyond the norms of the others.

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "coordinator/core/verdict/verdict_rule.h"

namespace atl::coordinator {
namespace {

class NormClip final : public VerdictRule {
 public:
  explicit NormClip(const v1::MergeSpec& spec) : spec_(spec) {}

  absl::string_view name() const override { return "norm clip"; }

  absl::StatusOr<Coefficients> Decide(
      const VerdictInput& input) const override {
    const double bound = ClipBound(spec_, input);
    std::vector<double> row = input.weights;
    int clipped_count = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] *= ClipScale(bound, input.norms[i]);
      clipped_count += input.norms[i] > bound ? 1 : 0;
    }
    Coefficients coefficients;
    ASSIGN_OR_RETURN(std::vector<float> rounded, RoundRow(row));
    coefficients.rows.push_back(std::move(rounded));
    coefficients.reason =
        absl::StrCat("shortens ", clipped_count, " contributions to ", bound);
    return coefficients;
  }

 private:
  const v1::MergeSpec spec_;
};

}  // namespace

std::unique_ptr<VerdictRule> MakeNormClip(const v1::MergeSpec& spec) {
  return std::make_unique<NormClip>(spec);
}

}  // namespace atl::coordinator
