// The presets that a plan compares, and which of them to take.
//
// Pure. Thread-safe. How a run of a preset exchanges is what its run file says
// (deploy/config/NAME.toml), read and handed in by the caller: nothing of it is
// said again here.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/planner/forecast.h"

namespace atl::worker::planner {

// What no run file says of a preset.
struct Preset {
  absl::string_view name;  // Of its run file, too.
  // What it costs beside time, in a few words; empty if nothing is known.
  absl::string_view price;
  // For data that may not leave its island; others train on data that is dealt.
  bool is_for_local_data = false;
};

// In the order in which they are to be preferred where time does not decide:
// the one that changes the fewest things about plain training first.
absl::Span<const Preset> Presets();

// `element_count` elements in `fragment_count` parts, both >= 1, that differ by
// one element at most; no part is empty.
std::vector<int64_t> EvenFragments(int64_t element_count,
                                   int64_t fragment_count);

// A preset's forecast.
struct Candidate {
  const Preset* preset = nullptr;
  Forecast forecast;
};

struct Choice {
  // One of those that were given, where they are; null: there is none.
  const Candidate* candidate = nullptr;
  std::string why;  // A sentence.
};

// The share of time that an island should compute, unless its owner says
// otherwise.
inline constexpr double kTargetUtilization = 0.95;

// The one to take: the first, in the order of Presets(), whose utilization
// reaches `target`; if none does, the one with the highest. Only those for the
// data's kind.
Choice Choose(absl::Span<const Candidate> candidates, double target,
              bool data_is_local);

}  // namespace atl::worker::planner
