// Checks a run's spec for CreateRun: every field out of range and every invalid
// combination gives a sentence. Pure. Thread-safe.

#pragma once

#include <vector>

#include "atoll/v1/run.pb.h"
#include "base/layout/run_bounds.h"
#include "base/status/refusal.h"

namespace atl::coordinator {

// Returns all faults of `spec`. Field paths start with "spec.".
std::vector<FieldViolation> ValidateSpec(const v1::RunSpec& spec);

// Its parts, which append what is wrong to `violations`.

// The data and evaluations on it. Reads no data: whether a manifest fits the
// spec is checked by clients and islands.
void CheckData(const v1::RunSpec& spec,
               std::vector<FieldViolation>& violations);

// The exchange of tensors, alone and together with the rest of `spec`.
void CheckExchange(const v1::RunSpec& spec,
                   std::vector<FieldViolation>& violations);

// External models, which only their trainers know: model, inner, data and
// evaluation. Another model must not have external data.
void CheckExternal(const v1::RunSpec& spec,
                   std::vector<FieldViolation>& violations);

// A streaming schedule: overlap, blend, staggered fragments, eager updates
// (worker/DESIGN.md, Streaming).
void ValidateStreaming(const v1::RunSpec& spec,
                       std::vector<FieldViolation>& violations);

}  // namespace atl::coordinator
