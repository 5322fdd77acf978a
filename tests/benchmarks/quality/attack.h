// How a hostile island alters an honest outer gradient.
//
// Pure. Thread-safe.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace atl::benchmarks {

enum class AttackKind {
  kSignFlip,  // -factor * g: against the honest direction.
  kScale,     // factor * g: one island outweighs all others.
  kDrift,     // g + factor * rms(g) in every element.
  kNoise,     // Normal numbers whose norm is factor * |g|.
  kSpike,     // Every element is factor.
  kNan,       // g, but its first element is no number.
};

struct Attack {
  AttackKind kind = AttackKind::kSignFlip;
  double factor = 1;  // Finite, > 0.
};

// Parses "sign_flip", "scale:100", "drift:1", "noise", "spike:1e30" or "nan";
// the default factor is 1.
//
// INVALID_ARGUMENT: no such attack, or no such factor.
absl::StatusOr<Attack> ParseAttack(const std::string& text);

// Alters `g` in place. Deterministic, so that a repeated push has the same
// bytes.
void Apply(const Attack& attack, absl::Span<float> g);

}  // namespace atl::benchmarks
