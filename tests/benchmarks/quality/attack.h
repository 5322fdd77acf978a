// What a hostile island makes of an honest outer gradient.
//
// Pure. Thread-safe.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace atl::benchmarks {

enum class AttackKind {
  kSignFlip,  // -factor * g: away from where the data leads.
  kScale,     // factor * g: one island outweighs all others.
  kDrift,     // g + factor * rms(g) in every element: always the same way.
};

struct Attack {
  AttackKind kind = AttackKind::kSignFlip;
  double factor = 1;  // Finite, > 0.
};

// "sign_flip", "scale:100", "drift:1"; the factor is 1 without a number.
//
// INVALID_ARGUMENT: no such attack, or no such factor.
absl::StatusOr<Attack> ParseAttack(const std::string& text);

// Turns `g` into what is pushed. The same for the same g, so that a push that
// is repeated carries the same bytes.
void Apply(const Attack& attack, absl::Span<float> g);

}  // namespace atl::benchmarks
