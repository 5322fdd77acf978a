#include "worker/engine/ops/cpu/routing.h"

#include <algorithm>

namespace atl::engine {

void ChooseExperts(int64_t n, int64_t k, const float* p, int32_t* experts,
                   float* weights) {
  float total = 0;
  for (int64_t j = 0; j < k; ++j) {
    int64_t best = -1;
    for (int64_t e = 0; e < n; ++e) {
      if (std::find(experts, experts + j, e) != experts + j) continue;
      if (best < 0 || p[e] > p[best]) best = e;
    }
    experts[j] = static_cast<int32_t>(best);
    total += p[best];
  }
  for (int64_t j = 0; j < k; ++j) weights[j] = p[experts[j]] / total;
}

void CountExpertChoices(const RouteShape& shape, const int32_t* experts,
                        float* counts) {
  const int64_t n = shape.expert_count;
  const int64_t of_group = shape.group_rows * shape.experts_per_token;
  std::fill_n(counts, shape.group_count() * n, 0.0f);
  for (int64_t g = 0; g < shape.group_count(); ++g) {
    for (int64_t i = g * of_group; i < (g + 1) * of_group; ++i) {
      counts[g * n + experts[i]] += 1.0f;
    }
  }
}

void PlanExpertDispatch(const RouteShape& shape, const int32_t* experts,
                        const float* before, int64_t* next, int32_t* slots,
                        int32_t* sources, int64_t* begins) {
  const int64_t n = shape.expert_count;
  const int64_t choices = shape.rows * shape.experts_per_token;
  const int64_t of_group = shape.group_rows * shape.experts_per_token;
  std::fill_n(begins, n + 1, 0);
  // Marks kept choices, row by row. `next` counts the choices of a group.
  for (int64_t g = 0; g < shape.group_count(); ++g) {
    for (int64_t e = 0; e < n; ++e) {
      next[e] = before == nullptr ? 0 : static_cast<int64_t>(before[g * n + e]);
    }
    for (int64_t i = g * of_group; i < (g + 1) * of_group; ++i) {
      const int32_t e = experts[i];
      slots[i] = next[e]++ < shape.capacity ? 0 : -1;
      if (slots[i] == 0) ++begins[e + 1];
    }
  }
  for (int64_t e = 0; e < n; ++e) {
    next[e] = begins[e];
    begins[e + 1] += begins[e];
  }
  for (int64_t i = 0; i < choices; ++i) {
    if (slots[i] < 0) continue;
    const int64_t slot = next[experts[i]]++;
    slots[i] = static_cast<int32_t>(slot);
    sources[slot] = static_cast<int32_t>(i / shape.experts_per_token);
  }
}

}  // namespace atl::engine
