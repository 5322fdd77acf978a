#include "worker/planner/preset.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace atl::worker::planner {

absl::Span<const Preset> Presets() {
  static constexpr Preset kPresets[] = {
      {"diloco", ""},
      {"streaming", ""},
      {"decoupled", "slow islands weigh less, and answers may be applied late"},
      {"sparseloco", "needs some hundreds of rounds"},
      // arXiv 2502.12996.
      {"eager", "a little loss (2.52 against 2.50 at 1B)"},
      {"volunteers",
       "slow islands weigh less, and long contributions are shortened"},
      {"async", "stale contributions"},
      {"fedopt", "", /*is_for_local_data=*/true},
      {"fedavg", "", /*is_for_local_data=*/true},
  };
  return kPresets;
}

std::vector<int64_t> EvenFragments(int64_t element_count,
                                   int64_t fragment_count) {
  const int64_t count = std::min(element_count, fragment_count);
  std::vector<int64_t> fragments(count, element_count / count);
  for (int64_t f = 0; f < element_count % count; ++f) ++fragments[f];
  return fragments;
}

Choice Choose(absl::Span<const Candidate> candidates, double target,
              bool data_is_local) {
  Choice choice;
  for (const Preset& preset : Presets()) {
    if (preset.is_for_local_data != data_is_local) continue;
    for (const Candidate& candidate : candidates) {
      if (candidate.preset->name != preset.name) continue;
      if (candidate.forecast.utilization >= target) {
        return {
            &candidate,
            absl::StrFormat("it computes %.1f %% of the time; of the presets "
                            "that reach %.3g %% it changes plain training "
                            "least: %s",
                            100 * candidate.forecast.utilization, 100 * target,
                            candidate.forecast.why)};
      }
      if (choice.candidate == nullptr ||
          candidate.forecast.utilization >
              choice.candidate->forecast.utilization) {
        choice.candidate = &candidate;
      }
    }
  }
  if (choice.candidate != nullptr) {
    choice.why = absl::StrFormat(
        "no preset computes %.3g %% of the time; it comes nearest, with "
        "%.3g %%: %s",
        100 * target, 100 * choice.candidate->forecast.utilization,
        choice.candidate->forecast.why);
  }
  return choice;
}

}  // namespace atl::worker::planner
