#include "tests/benchmarks/quality/attack.h"

#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace atl::benchmarks {
namespace {

double RootMeanSquare(absl::Span<const float> values) {
  if (values.empty()) return 0;
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

}  // namespace

absl::StatusOr<Attack> ParseAttack(const std::string& text) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  Attack attack;
  if (parts.first == "sign_flip") {
    attack.kind = AttackKind::kSignFlip;
  } else if (parts.first == "scale") {
    attack.kind = AttackKind::kScale;
  } else if (parts.first == "drift") {
    attack.kind = AttackKind::kDrift;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("no attack \"", text,
                     "\"; there are sign_flip, scale and drift, with :FACTOR"));
  }
  const bool has_factor = text.size() > parts.first.size();
  if (has_factor && (!absl::SimpleAtod(parts.second, &attack.factor) ||
                     !std::isfinite(attack.factor) || attack.factor <= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\": the factor must be greater than 0"));
  }
  return attack;
}

void Apply(const Attack& attack, absl::Span<float> g) {
  double scale = 1;
  double shift = 0;
  switch (attack.kind) {
    case AttackKind::kSignFlip:
      scale = -attack.factor;
      break;
    case AttackKind::kScale:
      scale = attack.factor;
      break;
    case AttackKind::kDrift:
      shift = attack.factor * RootMeanSquare(g);
      break;
  }
  for (float& v : g) v = static_cast<float>(scale * v + shift);
}

}  // namespace atl::benchmarks
