#include "coordinator/core/rounds/weights.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/layout/run_length.h"
#include "base/status/check.h"
#include "coordinator/core/rounds/lower_median.h"

namespace atl::coordinator {

int64_t MostSteps(const RunState& state, int32_t slot,
                  int64_t planned_step_count) {
  const v1::ScheduleSpec& schedule = state.spec().schedule();
  int64_t steps = planned_step_count;
  if (schedule.timing() != v1::TIMING_ELASTIC || state.members()[slot].enrolled()) {
    return steps;
  }
  return __builtin_add_overflow(steps, schedule.max_ahead_steps(), &steps)
             ? INT64_MAX
             : steps;
}

std::vector<int64_t> CreditSteps(const std::vector<int64_t>& planned,
                                 const std::vector<int64_t>& claimed) {
  CHECK_EQ(planned.size(), claimed.size());
  std::vector<double> ahead;
  for (size_t i = 0; i < planned.size(); ++i) {
    ahead.push_back(
        static_cast<double>(std::max<int64_t>(0, claimed[i] - planned[i])));
  }
  const double most = LowerMedian(ahead);
  std::vector<int64_t> steps;
  for (size_t i = 0; i < planned.size(); ++i) {
    steps.push_back(planned[i] +
                    static_cast<int64_t>(std::min(ahead[i], most)));
  }
  return steps;
}

int64_t CountedTokens(const v1::RunSpec& spec, int64_t step_count_max,
                      int64_t claimed_token_count) {
  return std::min(claimed_token_count, TokensOfSteps(spec, step_count_max));
}

int64_t CountedSteps(const v1::RunSpec& spec, int64_t token_count,
                     int64_t claimed_step_count) {
  const int64_t tokens_a_step = TokensAStep(spec);
  const int64_t least =
      token_count / tokens_a_step + (token_count % tokens_a_step != 0 ? 1 : 0);
  return std::max<int64_t>({1, least, claimed_step_count});
}

double CapShares(const std::vector<WeightCap>& caps,
                 std::vector<double>& weights) {
  CHECK_EQ(caps.size(), weights.size());
  struct Group {
    double share_max = 1;
    double weight = 0;
    bool capped = false;
  };
  std::map<std::string, Group> groups;  // "" is everybody without a limit.
  for (size_t i = 0; i < caps.size(); ++i) {
    Group& group = groups[caps[i].group];
    if (!caps[i].group.empty()) group.share_max = caps[i].share_max;
    group.weight += weights[i];
  }
  // Water-filling. A group that is fixed at its limit leaves more than its
  // proportion to the others, so that more of them may exceed theirs.
  double free_share = 1;
  double free_weight = 0;
  for (bool changed = true; changed;) {
    changed = false;
    free_share = 1;
    free_weight = 0;
    for (const auto& [name, group] : groups) {
      if (group.capped) free_share -= group.share_max;
      if (!group.capped) free_weight += group.weight;
    }
    for (auto& [name, group] : groups) {
      if (!group.capped && group.share_max < 1 &&
          group.weight * free_share > group.share_max * free_weight) {
        group.capped = changed = true;
        break;
      }
    }
  }
  for (size_t i = 0; i < caps.size(); ++i) {
    const Group& group = groups[caps[i].group];
    weights[i] *= group.capped ? group.share_max / group.weight
                               : free_share / free_weight;
  }
  // Without a free group no contribution gets the rest of the weight.
  return free_weight > 0 ? std::accumulate(weights.begin(), weights.end(), 0.0)
                         : 1.0;
}

std::vector<WeightCap> WeightCaps(const RunState& state,
                                  const std::vector<int32_t>& slots) {
  std::vector<WeightCap> caps;
  bool is_limited = false;
  for (const int32_t slot : slots) {
    const storage::v1::MemberSet& member = state.members()[slot].record;
    WeightCap& cap = caps.emplace_back();
    if (member.weight_share_max() <= 0) continue;
    cap = {member.token_id(), member.weight_share_max()};
    is_limited = true;
  }
  if (!is_limited) caps.clear();
  return caps;
}

std::vector<float> NormalizedWeights(v1::Weighting weighting,
                                     const std::vector<int64_t>& token_counts,
                                     const std::vector<int64_t>& step_counts,
                                     const std::vector<WeightCap>& caps) {
  CHECK(!token_counts.empty());
  CHECK_EQ(token_counts.size(), step_counts.size());
  std::vector<double> raw;
  raw.reserve(token_counts.size());
  double sum = 0;
  for (size_t i = 0; i < token_counts.size(); ++i) {
    const auto tokens = static_cast<double>(token_counts[i]);
    switch (weighting) {
      case v1::WEIGHTING_UNIFORM:
        raw.push_back(1.0);
        break;
      case v1::WEIGHTING_TOKENS_SQUARED_PER_STEP:
        raw.push_back(tokens * tokens / static_cast<double>(step_counts[i]));
        break;
      default:
        raw.push_back(tokens);
    }
    sum += raw.back();
  }
  CHECK_GT(sum, 0);
  if (!caps.empty()) {
    sum = CapShares(caps, raw);
  }
  std::vector<float> weights;
  weights.reserve(raw.size());
  for (double weight : raw) weights.push_back(static_cast<float>(weight / sum));
  return weights;
}

}  // namespace atl::coordinator
