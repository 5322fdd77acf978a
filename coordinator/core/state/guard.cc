#include "coordinator/core/state/guard.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace atl::coordinator {
namespace {

constexpr double kNormFactorMin = 10;
constexpr double kLossSpreads = 3;
constexpr double kLossShareMin = 0.5;

struct Spread {
  double median = 0;  // Lower.
  double high = 0;
};

// Requires: `values` is not empty.
template <typename Values>
Spread FindSpread(const Values& values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return {sorted[(sorted.size() - 1) / 2], sorted.back()};
}

// How `loss` exceeds the spread of `losses`; empty: it does not.
template <typename Losses>
std::string ExceedsLosses(const Losses& losses, double loss) {
  const Spread spread = FindSpread(losses);
  const double limit =
      spread.high + std::max(kLossSpreads * (spread.high - spread.median),
                             kLossShareMin * std::abs(spread.median));
  if (loss <= limit) return "";
  return absl::StrCat(loss, ", is above ", limit, " (the newest ",
                      losses.size(), " inside the band have the median ",
                      spread.median, " and the largest ", spread.high, ")");
}

void PushBounded(google::protobuf::RepeatedField<double>& values,
                 double value) {
  values.Add(value);
  if (values.size() > kBandValuesMax) {
    values.erase(values.begin(),
                 values.begin() + (values.size() - kBandValuesMax));
  }
}

}  // namespace

std::string FindDamage(const storage::v1::FragmentGuard& guard, double norm,
                       std::optional<double> loss) {
  if (!std::isfinite(norm)) return absl::StrCat("its norm is ", norm);
  if (loss.has_value() && !std::isfinite(*loss)) {
    return absl::StrCat("its training loss is ", *loss);
  }
  if (guard.norms_size() >= kBandValuesMin) {
    const Spread spread = FindSpread(guard.norms());
    const double limit =
        spread.high * std::max(kNormFactorMin, spread.high / spread.median);
    if (norm > limit) {
      return absl::StrCat("its norm, ", norm, ", is above ", limit,
                          " (the newest ", guard.norms_size(),
                          " inside the band have the median ", spread.median,
                          " and the largest ", spread.high, ")");
    }
  }
  if (loss.has_value() && guard.losses_size() >= kBandValuesMin) {
    const std::string exceeds = ExceedsLosses(guard.losses(), *loss);
    if (!exceeds.empty()) return absl::StrCat("its training loss, ", exceeds);
  }
  return "";
}

std::string FindEvaluationDamage(const std::vector<double>& losses,
                                 double loss) {
  if (losses.size() < kBandEvaluationsMin) return "";
  if (!std::isfinite(loss)) {
    return absl::StrCat("its evaluation failed, after ", losses.size(),
                        " of the same island that did not");
  }
  const std::string exceeds = ExceedsLosses(losses, loss);
  return exceeds.empty() ? "" : absl::StrCat("its validation loss, ", exceeds);
}

void NoteCommit(double norm, std::optional<double> loss,
                const std::string& outside, storage::v1::FragmentGuard& guard) {
  if (!outside.empty()) {
    guard.set_held_count(guard.held_count() + 1);
    guard.set_inside_count(0);
    guard.set_reason(outside);
    return;
  }
  // Norms of 0, of islands that have not trained yet, say nothing.
  if (std::isfinite(norm) && norm > 0) {
    PushBounded(*guard.mutable_norms(), norm);
  }
  if (loss.has_value() && std::isfinite(*loss)) {
    PushBounded(*guard.mutable_losses(), *loss);
  }
  if (guard.held_count() == 0) return;
  guard.set_held_count(guard.held_count() + 1);
  guard.set_inside_count(guard.inside_count() + 1);
  if (guard.inside_count() < kHeldCommitsMax || guard.held_by_evaluation()) {
    return;
  }
  guard.clear_held_count();
  guard.clear_inside_count();
  guard.clear_reason();
}

void NoteEvaluation(const std::string& outside,
                    storage::v1::FragmentGuard& guard) {
  guard.set_held_by_evaluation(!outside.empty());
  if (outside.empty()) return;
  guard.set_held_count(std::max<int64_t>(guard.held_count(), 1));
  guard.set_inside_count(0);
  guard.set_reason(outside);
}

}  // namespace atl::coordinator
