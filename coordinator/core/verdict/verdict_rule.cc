#include "coordinator/core/verdict/verdict_rule.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "base/layout/merge_groups.h"
#include "base/status/check.h"

namespace atl::coordinator {

std::unique_ptr<VerdictRule> MakeVerdictRule(const v1::MergeSpec& spec) {
  switch (spec.rule()) {
    case v1::MERGE_RULE_KIND_RDA:
      return MakeRda();
    case v1::MERGE_RULE_KIND_NORM_CLIP:
      return MakeNormClip(spec);
    case v1::MERGE_RULE_KIND_CENTRED_CLIP:
      return MakeCentredClip(spec);
    case v1::MERGE_RULE_KIND_KRUM:
      return MakeKrum(spec);
    case v1::MERGE_RULE_KIND_MDA:
      return MakeMinimumDiameterAveraging(spec);
    default:
      return nullptr;
  }
}

int64_t ContributionsMax(const RunLayout& layout, const v1::RunSpec& spec) {
  if (MakeVerdictRule(spec.outer().merge()) == nullptr) return INT64_MAX;
  int64_t group_count = 0;
  for (int32_t f = 0; f < layout.fragment_count(); ++f) {
    group_count += MergeGroups(layout, spec, f).count();
  }
  int count = kVerdictContributionsMax;
  while (count > 1 &&
         group_count * GramMatrix::EntryCount(count) * GramMatrix::kEntryBytes >
             kStatisticsBytesMax) {
    --count;
  }
  return count;
}

ExactSum SquaredDistance(const GramMatrix& gram, int i, int j) {
  return ExactSum::Distance(gram.at(i, i), gram.at(j, j), gram.at(i, j));
}

double ComputeMedian(std::vector<double> values) {
  CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle]
                                : 0.5 * (values[middle - 1] + values[middle]);
}

double ClipBound(const v1::MergeSpec& spec, const VerdictInput& input) {
  const size_t window =
      spec.clip_round_count() > 0 ? spec.clip_round_count() : 16;
  std::vector<double> medians = {ComputeMedian(input.norms)};
  for (auto past = input.past_median_norms.rbegin();
       past != input.past_median_norms.rend() && medians.size() < window;
       ++past) {
    medians.push_back(*past);
  }
  const double factor = spec.clip_factor() > 0 ? spec.clip_factor() : 1.0;
  return factor * ComputeMedian(std::move(medians));
}

double ClipScale(double bound, double norm) {
  return norm > bound ? bound / norm : 1.0;
}

absl::StatusOr<std::vector<float>> RoundRow(const std::vector<double>& row) {
  std::vector<float> rounded;
  rounded.reserve(row.size());
  for (const double value : row) {
    rounded.push_back(static_cast<float>(value));
    if (!std::isfinite(rounded.back())) {
      return absl::InternalError("a coefficient of the merge is not finite");
    }
  }
  return rounded;
}

}  // namespace atl::coordinator
