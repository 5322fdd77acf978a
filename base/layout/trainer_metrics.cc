#include "base/layout/trainer_metrics.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"

namespace atl {

bool IsTrainerMetricName(absl::string_view name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '/' ||
                  c == '-';
         });
}

void WeightedMeans::Add(const std::string& name, double value,
                        int64_t token_count) {
  if (!std::isfinite(value)) return;
  if (means_.size() >= kTrainerMetricsMax && !means_.contains(name)) return;
  Mean& mean = means_[name];
  const int64_t added = std::max<int64_t>(1, token_count);
  if (__builtin_add_overflow(mean.token_count, added, &mean.token_count)) {
    mean.token_count = INT64_MAX;
  }
  // Stays between the two values, so it stays finite.
  const double share =
      static_cast<double>(added) / static_cast<double>(mean.token_count);
  mean.value = mean.value * (1 - share) + value * share;
}

std::map<std::string, double> WeightedMeans::means() const {
  std::map<std::string, double> means;
  for (const auto& [name, mean] : means_) means[name] = mean.value;
  return means;
}

int64_t WeightedMeans::token_count() const {
  int64_t most = 0;
  for (const auto& [name, mean] : means_) {
    most = std::max(most, mean.token_count);
  }
  return most;
}

}  // namespace atl
