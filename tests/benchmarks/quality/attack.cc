#include "tests/benchmarks/quality/attack.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <utility>

#include "absl/base/casts.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace atl::benchmarks {
namespace {

double RootMeanSquare(absl::Span<const float> values) {
  if (values.empty()) return 0;
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// The first element of `g` seeds the generator: each gradient has other noise,
// and a repeated push the same.
void FillWithNoise(double root_mean_square, absl::Span<float> g) {
  if (g.empty()) return;
  std::mt19937 random(absl::bit_cast<uint32_t>(g[0]));
  std::normal_distribution<double> normal;
  for (float& v : g) v = static_cast<float>(normal(random));
  const double scale = root_mean_square / RootMeanSquare(g);
  for (float& v : g) v = static_cast<float>(scale * v);
}

}  // namespace

absl::StatusOr<Attack> ParseAttack(const std::string& text) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  Attack attack;
  constexpr std::pair<absl::string_view, AttackKind> kNames[] = {
      {"sign_flip", AttackKind::kSignFlip}, {"scale", AttackKind::kScale},
      {"drift", AttackKind::kDrift},        {"noise", AttackKind::kNoise},
      {"spike", AttackKind::kSpike},        {"nan", AttackKind::kNan}};
  const auto* const named =
      std::find_if(std::begin(kNames), std::end(kNames),
                   [&](const auto& name) { return name.first == parts.first; });
  if (named == std::end(kNames)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no attack \"", text,
        "\"; there are sign_flip, scale, drift, noise, spike and nan, with "
        ":FACTOR"));
  }
  attack.kind = named->second;
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
    case AttackKind::kNoise:
      return FillWithNoise(attack.factor * RootMeanSquare(g), g);
    case AttackKind::kSpike:
      std::fill(g.begin(), g.end(), static_cast<float>(attack.factor));
      return;
    case AttackKind::kNan:
      if (!g.empty()) g[0] = std::numeric_limits<float>::quiet_NaN();
      return;
  }
  for (float& v : g) v = static_cast<float>(scale * v + shift);
}

}  // namespace atl::benchmarks
