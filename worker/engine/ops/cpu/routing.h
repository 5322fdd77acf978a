// The integer part of routing, with RouteShape's letters. Thread-safe.

#pragma once

#include <cstdint>

#include "worker/engine/ops/shapes.h"

namespace atl::engine {

// experts [k] = the k largest of n probabilities p, on ties the lower index;
// weights [k] = their probabilities divided by their sum.
void ChooseExperts(int64_t n, int64_t k, const float* p, int32_t* experts,
                   float* weights);

// MixtureOps::CountChoices.
void CountExpertChoices(const RouteShape& shape, const int32_t* experts,
                        float* counts);

// MixtureOps::PlanDispatch; `next` [E] is scratch.
void PlanExpertDispatch(const RouteShape& shape, const int32_t* experts,
                        const float* before, int64_t* next, int32_t* slots,
                        int32_t* sources, int64_t* begins);

}  // namespace atl::engine
