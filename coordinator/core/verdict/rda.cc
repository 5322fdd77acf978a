// RDA of Decoupled DiLoCo (arXiv 2604.21428) averages directions and lengths
// separately, because a plain mean of M nearly orthogonal gradients is about
// sqrt(M) times shorter than they are. For each tensor:
//
//   d = sum(w_i x_i / |x_i|), with 0 for x_i = 0;  n = sum(w_i |x_i|)
//   out = n d / |d|, so c_i = (n / |d|) w_i / |x_i|;  c_i = w_i if |d| < 1e-6
//   |d|^2 = sum_ij (w_i / |x_i|) (w_j / |x_j|) G_ij

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "coordinator/core/verdict/verdict_rule.h"

namespace atl::coordinator {
namespace {

constexpr double kDirectionMin = 1e-6;

class Rda final : public VerdictRule {
 public:
  absl::string_view name() const override { return "rda"; }

  absl::StatusOr<Coefficients> Decide(
      const VerdictInput& input) const override {
    Coefficients coefficients;
    int mean_count = 0;
    for (const GramMatrix& gram : input.grams) {
      std::vector<double> row = Row(input.weights, gram);
      if (row.empty()) {
        row = input.weights;
        ++mean_count;
      }
      ASSIGN_OR_RETURN(std::vector<float> rounded, RoundRow(row));
      coefficients.rows.push_back(std::move(rounded));
    }
    coefficients.reason =
        absl::StrCat("keeps directions and lengths of ",
                     input.grams.size() - mean_count, " tensors");
    if (mean_count > 0) {
      absl::StrAppend(&coefficients.reason, "; ", mean_count,
                      " have no direction in common and are averaged");
    }
    return coefficients;
  }

 private:
  // Empty if the directions cancel out.
  static std::vector<double> Row(const std::vector<double>& weights,
                                 const GramMatrix& gram) {
    const int n = gram.n();
    std::vector<double> shares(n, 0.0);  // w_i / |x_i|.
    double length = 0;
    for (int i = 0; i < n; ++i) {
      const double norm = std::sqrt(gram.at(i, i).ToDouble());
      if (norm > 0) shares[i] = weights[i] / norm;
      length += weights[i] * norm;
    }
    double square = 0;
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        square += shares[i] * shares[j] * gram.at(i, j).ToDouble();
      }
    }
    const double direction = std::sqrt(std::max(square, 0.0));
    if (direction < kDirectionMin) return {};
    for (double& share : shares) share *= length / direction;
    return shares;
  }
};

}  // namespace

std::unique_ptr<VerdictRule> MakeRda() { return std::make_unique<Rda>(); }

}  // namespace atl::coordinator
