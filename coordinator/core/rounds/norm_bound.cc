#include "coordinator/core/rounds/norm_bound.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/rounds/lower_median.h"
#include "coordinator/core/rounds/weights.h"

namespace atl::coordinator {
namespace {

// The norm that the layout's initial values are expected to have.
double ExpectVersion0Norm(const RunState& state, int32_t fragment) {
  const RunLayout& layout = state.layout();
  double squared = 0;
  for (const int32_t t : layout.fragment_tensors(fragment)) {
    // `value` is the constant, or the standard deviation.
    const double value = state.spec().layout().tensors(t).init().value();
    squared += value * value *
               static_cast<double>(layout.tensors()[t].element_count);
  }
  return std::sqrt(squared);
}

// The norm of version 0; -1 if it is unknown.
double FindVersion0Norm(const RunState& state, int32_t fragment) {
  if (!state.version0_norms().empty()) return state.version0_norms()[fragment];
  if (state.spec().init().import()) return -1;
  return ExpectVersion0Norm(state, fragment);
}

}  // namespace

int64_t CountBoundedSteps(const RunState& state, int32_t fragment, int32_t slot,
                          int64_t claimed_step_count) {
  int64_t most = state.spec().schedule().inner_step_count();
  const v1::OpenRound& open = state.fragments()[fragment].open;
  const int plan = FindSlotPlan(open, slot);
  if (plan >= 0) most = open.slots(plan).step_count();
  most = MostSteps(state, slot, most);
  return std::clamp<int64_t>(claimed_step_count, 1, std::max<int64_t>(1, most));
}

NormBound FindNormBound(const RunState& state, int32_t fragment,
                        int64_t counted_step_count) {
  const double factor = state.spec().outer().enrolled_norm_factor();
  if (!(factor > 0)) return {};
  std::vector<double> norms, step_counts;
  for (const StepNorm& one : state.fragments()[fragment].step_norms) {
    norms.push_back(one.norm_by_steps);
    step_counts.push_back(static_cast<double>(one.step_count));
  }
  if (norms.size() >= kStepNormsMin) {
    const double median = LowerMedian(norms);
    const double steps = std::max(static_cast<double>(counted_step_count),
                                  LowerMedian(step_counts));
    if (median > 0) {
      return {factor * median * steps,
              absl::StrCat(factor, " x ", median, " a step (median of ",
                           norms.size(), " merged) x ", steps, " steps")};
    }
  }
  const double norm = FindVersion0Norm(state, fragment);
  if (norm > 0) return {norm, "the norm of version 0"};
  if (norm < 0) return {};
  return {std::sqrt(static_cast<double>(
              state.layout().fragment_element_count(fragment))),
          "the root of the element count, because version 0 is 0"};
}

bool IsBounded(const RunState& state, int32_t slot) {
  return state.spec().outer().enrolled_norm_factor() > 0 &&
         !state.members()[slot].record.token_id().empty();
}

}  // namespace atl::coordinator
