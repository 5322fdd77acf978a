// The presets that a plan compares, and the choice among them. Pure.
// Thread-safe. Each preset's exchange comes from its run file
// (deploy/config/NAME.toml), which the caller reads.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/planner/forecast.h"

namespace atl::worker::planner {

// Facts about a preset that are not in its run file.
struct Preset {
  absl::string_view name;  // Also the name of its run file.
  // Its cost besides time, in a few words; empty if unknown.
  absl::string_view price;
  // For data that must not leave its island; others share out their data.
  bool is_for_local_data = false;
};

// In order of preference at equal time: fewest changes to plain training first.
absl::Span<const Preset> Presets();

// `element_count` elements in `fragment_count` parts, both >= 1. Parts differ
// by at most one element; no part is empty.
std::vector<int64_t> EvenFragments(int64_t element_count,
                                   int64_t fragment_count);

struct Candidate {
  const Preset* preset = nullptr;
  Forecast forecast;
};

struct Choice {
  // Points into the given candidates; null: none fits.
  const Candidate* candidate = nullptr;
  std::string why;  // A sentence.
};

// Default for the share of time that an island should compute.
inline constexpr double kTargetUtilization = 0.95;

// Chooses among the presets for this kind of data: the first, in the order of
// Presets(), whose utilization reaches `target`; otherwise the one with the
// highest utilization.
Choice Choose(absl::Span<const Candidate> candidates, double target,
              bool data_is_local);

}  // namespace atl::worker::planner
