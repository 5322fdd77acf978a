// The recipes that a plan compares, and which of them to take.
//
// Pure. Thread-safe. Parameters are those of the literature (arXiv 2311.08105
// DiLoCo, 2501.18512 streaming, 2502.12996 eager, 2401.09135 async, 1602.05629
// FedAvg, 2003.00295 FedOpt; decoupled: 24 fragments, H = 24, overlap 2;
// SparseLoCo: H = 30, 64 of 4096 with 2 bits). Where a paper exchanges between
// equals and has no downlink, the codec down is ours.

#ifndef WORKER_CORE_PLANNER_PRESET_H_
#define WORKER_CORE_PLANNER_PRESET_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/core/planner/forecast.h"

namespace atl::worker::planner {

struct Preset {
  absl::string_view name;
  absl::string_view what;  // A few words.
  // What it costs beside time, in a few words; empty if nothing is known.
  absl::string_view price;
  // Of `exchange` all but fragment_elements.
  Exchange exchange;
  // Layers a fragment; 0 for one fragment of all.
  int64_t layers_a_fragment = 0;
  // Fragments, where layers allow; 0: by layers_a_fragment.
  int64_t fragment_count = 0;
  // For data that may not leave its island; others train on data that is dealt.
  bool is_for_local_data = false;
};

// In the order in which they are to be preferred where time does not decide:
// the one that changes the fewest things about plain training first.
absl::Span<const Preset> Presets();

// How many fragments a model with `layer_count` (>= 1) layers has in `preset`.
int64_t FragmentCountOf(const Preset& preset, int64_t layer_count);

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
  std::string why;                       // A sentence.
};

// The share of time that an island should compute, unless its owner says
// otherwise.
inline constexpr double kTargetUtilization = 0.95;

// The one to take: the first, in the order of Presets(), whose utilization
// reaches `target`; if none does, the one with the highest. Only candidates
// that `may_take` holds for, and only those for the data's kind.
Choice Choose(absl::Span<const Candidate> candidates, double target,
              bool data_is_local,
              const std::function<bool(const Preset&)>& may_take);

}  // namespace atl::worker::planner

#endif  // WORKER_CORE_PLANNER_PRESET_H_
