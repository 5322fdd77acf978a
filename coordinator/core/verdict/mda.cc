// Minimum-diameter averaging (El-Mhamdi et al., Genuinely distributed Byzantine
// machine learning, Distributed Computing 35, 2022): the mean of the n - f
// contributions with the smallest diameter, their largest pairwise distance. If
// sets have equal diameters, their next largest distances decide, so the order
// of islands does not matter. Distances are exact integers. If all are equal,
// higher slots are left out.
//
// n >= 2 f + 1. A set of n - f has diameter <= d if the f others cover all
// pairs that are further apart. So the search tries 2^f covers for each of
// log(n^2) distances, not every set.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status/status_macros.h"
#include "coordinator/core/verdict/verdict_rule.h"

namespace atl::coordinator {
namespace {

// Finds contributions to leave out, so that kept pairs are within a bound.
class Cover {
 public:
  // `ranks[i][j]`, j < i: the ranks of the distances.
  explicit Cover(const std::vector<std::vector<int>>& ranks)
      : ranks_(ranks), out_(ranks.size(), false) {}

  // True if leaving out at most `count` contributions meets `bound`.
  bool Exists(int bound, int count) {
    return Find(bound, count, [] { return true; });
  }

  // Returns the cover, among all such, whose kept distances, largest first, are
  // lexicographically smallest. Requires: Exists(bound, count).
  std::vector<bool> FindBest(int bound, int count) {
    std::vector<bool> best;
    std::vector<int> best_ranks;
    Find(bound, count, [&] {
      std::vector<int> ranks = KeptRanks();
      if (best.empty() || ranks < best_ranks) {
        best = out_;
        best_ranks = std::move(ranks);
      }
      return false;
    });
    return best;
  }

 private:
  // Visits the covers, each in out_, until `taken` accepts one. Restores out_.
  bool Find(int bound, int count, absl::FunctionRef<bool()> taken) {
    const int n = static_cast<int>(ranks_.size());
    for (int i = 0; i < n; ++i) {
      for (int j = 0; !out_[i] && j < i; ++j) {
        if (out_[j] || ranks_[i][j] <= bound) continue;
        if (count == 0) return false;
        // One of the two must go.
        for (const int gone : {i, j}) {
          out_[gone] = true;
          const bool found = Find(bound, count - 1, taken);
          out_[gone] = false;
          if (found) return true;
        }
        return false;
      }
    }
    return taken();
  }

  // Largest first.
  std::vector<int> KeptRanks() const {
    std::vector<int> kept;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      for (size_t j = 0; !out_[i] && j < i; ++j) {
        if (!out_[j]) kept.push_back(ranks_[i][j]);
      }
    }
    std::sort(kept.begin(), kept.end(), std::greater<int>());
    return kept;
  }

  const std::vector<std::vector<int>>& ranks_;
  std::vector<bool> out_;
};

class MinimumDiameterAveraging final : public VerdictRule {
 public:
  explicit MinimumDiameterAveraging(const v1::MergeSpec& spec)
      : byzantine_count_(spec.byzantine_count()) {}

  absl::string_view name() const override { return "mda"; }

  absl::StatusOr<Coefficients> Decide(
      const VerdictInput& input) const override {
    const int n = static_cast<int>(input.weights.size());
    if (n < 2 * byzantine_count_ + 1) {
      return absl::FailedPreconditionError(absl::StrCat(
          "minimum-diameter averaging needs ", 2 * byzantine_count_ + 1,
          " contributions if ", byzantine_count_, " may be hostile; there are ",
          n));
    }
    Coefficients coefficients;
    for (const GramMatrix& gram : input.grams) {
      const std::vector<bool> out = LeftOut(gram);
      std::vector<double> row(n, 0.0);
      std::vector<int> named;
      for (int i = 0; i < n; ++i) {
        if (out[i]) {
          named.push_back(i);
        } else {
          row[i] = 1.0 / (n - byzantine_count_);
        }
      }
      ASSIGN_OR_RETURN(std::vector<float> rounded, RoundRow(row));
      coefficients.rows.push_back(std::move(rounded));
      coefficients.reason =
          named.empty() ? absl::StrCat("takes all ", n, " contributions")
                        : absl::StrCat("leaves out numbers ",
                                       absl::StrJoin(named, ", "), " of ", n,
                                       " contributions");
    }
    return coefficients;
  }

 private:
  std::vector<bool> LeftOut(const GramMatrix& gram) const {
    const int n = gram.n();
    std::vector<ExactSum> sorted = {ExactSum()};
    std::vector<std::vector<ExactSum>> distances(n);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < i; ++j) {
        distances[i].push_back(SquaredDistance(gram, i, j));
        sorted.push_back(distances[i][j]);
      }
    }
    std::sort(sorted.begin(), sorted.end());
    std::vector<std::vector<int>> ranks(n);
    for (int i = 0; i < n; ++i) {
      for (const ExactSum& distance : distances[i]) {
        ranks[i].push_back(static_cast<int>(
            std::lower_bound(sorted.begin(), sorted.end(), distance) -
            sorted.begin()));
      }
    }
    // The smallest diameter. The largest distance is always possible.
    int low = 0, high = static_cast<int>(sorted.size()) - 1;
    while (low < high) {
      const int middle = low + (high - low) / 2;
      if (Cover(ranks).Exists(middle, byzantine_count_)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    std::vector<bool> out = Cover(ranks).FindBest(low, byzantine_count_);
    // With equal distances a smaller cover may suffice.
    int more = byzantine_count_ -
               static_cast<int>(std::count(out.begin(), out.end(), true));
    for (int i = n - 1; i >= 0 && more > 0; --i) {
      if (out[i]) continue;
      out[i] = true;
      --more;
    }
    return out;
  }

  const int byzantine_count_;
};

}  // namespace

std::unique_ptr<VerdictRule> MakeMinimumDiameterAveraging(
    const v1::MergeSpec& spec) {
  return std::make_unique<MinimumDiameterAveraging>(spec);
}

}  // namespace atl::coordinator
