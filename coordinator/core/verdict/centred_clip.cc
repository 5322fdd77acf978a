// Centred clipping (arXiv 2012.10333). It repeats, from a centre v:
//
//   v = v + sum_i w_i (x_i - v) min(1, bound / |x_i - v|)
//
// so that no island moves v further than the bound in one step. The paper
// starts from the previous round's merge. Here v starts from 0, so that every v
// is sum_i a_i x_i of this round, and the Gram matrix gives all lengths:
//
//   |x_i - v|^2 = G_ii - 2 (G a)_i + a' G a
//   a_i = (1 - sum_j w_j s_j) a_i + w_i s_i,  s_i = min(1, bound / |x_i - v|)
//
// No island chooses the centre 0, whereas an attacker can choose the mean. The
// bound is that of norm clipping. If the weights sum to less than 1
// (rounds/weights.h), the rest w_0 is the weight of one more contribution, 0:
// it pulls v back, by moved += w_0 s_0.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "coordinator/core/verdict/verdict_rule.h"

namespace atl::coordinator {
namespace {

// w_0. Weights that sum to 1 but for their rounding to f32 lack nothing.
double MissingWeight(const std::vector<double>& weights) {
  const double missing =
      1 - std::accumulate(weights.begin(), weights.end(), 0.0);
  return missing > 1e-6 * static_cast<double>(weights.size() + 1) ? missing : 0;
}

class CentredClip final : public VerdictRule {
 public:
  explicit CentredClip(const v1::MergeSpec& spec) : spec_(spec) {}

  absl::string_view name() const override { return "centred clip"; }

  absl::StatusOr<Coefficients> Decide(
      const VerdictInput& input) const override {
    const int iteration_count =
        spec_.iteration_count() > 0 ? spec_.iteration_count() : 3;
    const double bound = ClipBound(spec_, input);
    Coefficients coefficients;
    for (const GramMatrix& gram : input.grams) {
      std::vector<double> a(gram.n(), 0.0);
      for (int k = 0; k < iteration_count; ++k) {
        Iterate(input.weights, gram, bound, a);
      }
      ASSIGN_OR_RETURN(std::vector<float> rounded, RoundRow(a));
      coefficients.rows.push_back(std::move(rounded));
    }
    coefficients.reason = absl::StrCat("clips differences to ", bound);
    return coefficients;
  }

 private:
  static void Iterate(const std::vector<double>& weights,
                      const GramMatrix& gram, double bound,
                      std::vector<double>& a) {
    const int n = gram.n();
    std::vector<double> products(n, 0.0);  // (G a)_i.
    double square = 0;                     // a' G a.
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        products[i] += gram.at(i, j).ToDouble() * a[j];
      }
      square += a[i] * products[i];
    }
    double moved = MissingWeight(weights) *
                   ClipScale(bound, std::sqrt(std::max(square, 0.0)));
    std::vector<double> pulls(n);  // w_i s_i.
    for (int i = 0; i < n; ++i) {
      const double distance = std::sqrt(
          std::max(gram.at(i, i).ToDouble() - 2 * products[i] + square, 0.0));
      pulls[i] = weights[i] * ClipScale(bound, distance);
      moved += pulls[i];
    }
    for (int i = 0; i < n; ++i) a[i] = (1 - moved) * a[i] + pulls[i];
  }

  const v1::MergeSpec spec_;
};

}  // namespace

std::unique_ptr<VerdictRule> MakeCentredClip(const v1::MergeSpec& spec) {
  return std::make_unique<CentredClip>(spec);
}

}  // namespace atl::coordinator
