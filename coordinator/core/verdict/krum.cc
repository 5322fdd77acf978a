// Krum (arXiv 1703.02757) takes the contribution with the smallest sum of
// squared distances to its n - f - 2 nearest others. Multi-Krum takes the mean
// of the m best. n >= 2 f + 3. Distances are integers; ties go to the lowest
// slot.

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status/status_macros.h"
#include "coordinator/core/verdict/verdict_rule.h"

namespace atl::coordinator {
namespace {

class Krum final : public VerdictRule {
 public:
  explicit Krum(const v1::MergeSpec& spec)
      : byzantine_count_(spec.byzantine_count()),
        selected_count_(std::max(spec.selected_count(), 1)) {}

  absl::string_view name() const override { return "krum"; }

  absl::StatusOr<Coefficients> Decide(
      const VerdictInput& input) const override {
    const int n = static_cast<int>(input.weights.size());
    if (n < 2 * byzantine_count_ + 3) {
      return absl::FailedPreconditionError(absl::StrCat(
          "krum needs ", 2 * byzantine_count_ + 3, " contributions if ",
          byzantine_count_, " may be hostile; there are ", n));
    }
    const int selected_count =
        std::min(selected_count_, n - byzantine_count_ - 2);
    Coefficients coefficients;
    for (const GramMatrix& gram : input.grams) {
      const std::vector<int> best = Ranking(gram);
      std::vector<double> row(n, 0.0);
      for (int k = 0; k < selected_count; ++k) {
        row[best[k]] = 1.0 / selected_count;
      }
      ASSIGN_OR_RETURN(std::vector<float> rounded, RoundRow(row));
      coefficients.rows.push_back(std::move(rounded));
      coefficients.reason = absl::StrCat(
          "takes numbers ",
          absl::StrJoin(best.begin(), best.begin() + selected_count, ", "),
          " of ", n, " contributions");
    }
    return coefficients;
  }

 private:
  // Contributions by score, smallest first.
  std::vector<int> Ranking(const GramMatrix& gram) const {
    const int n = gram.n();
    const int near_count = n - byzantine_count_ - 2;
    std::vector<ExactSum> scores(n);
    for (int i = 0; i < n; ++i) {
      std::vector<ExactSum> distances;
      for (int j = 0; j < n; ++j) {
        if (j == i) continue;
        distances.push_back(SquaredDistance(gram, i, j));
      }
      std::sort(distances.begin(), distances.end());
      for (int k = 0; k < near_count; ++k) scores[i] += distances[k];
    }
    std::vector<int> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return scores[a] < scores[b]; });
    return order;
  }

  const int byzantine_count_;
  const int selected_count_;
};

}  // namespace

std::unique_ptr<VerdictRule> MakeKrum(const v1::MergeSpec& spec) {
  return std::make_unique<Krum>(spec);
}

}  // namespace atl::coordinator
