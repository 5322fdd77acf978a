#include "worker/engine/sampling.h"

#include <cmath>
#include <cstddef>

#include "base/codec/bits.h"

namespace atl::engine {
namespace {

// Lowest index of the largest finite logit, or -1.
int32_t ArgMax(absl::Span<const float> logits) {
  int32_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) continue;
    if (best < 0 || logits[i] > logits[static_cast<size_t>(best)]) {
      best = static_cast<int32_t>(i);
    }
  }
  return best;
}

}  // namespace

int32_t SampleToken(absl::Span<const float> logits, double temperature,
                    double uniform) {
  const int32_t best = ArgMax(logits);
  if (best < 0) return 0;
  if (!(temperature > 0)) return best;
  const double top = logits[static_cast<size_t>(best)];
  auto weight = [&](float logit) {
    return std::isfinite(logit) ? std::exp((logit - top) / temperature) : 0.0;
  };
  double total = 0;
  for (float logit : logits) total += weight(logit);
  double left = uniform * total;
  int32_t last = best;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double share = weight(logits[i]);
    if (share <= 0) continue;
    last = static_cast<int32_t>(i);
    left -= share;
    if (left < 0) return last;
  }
  return last;
}

double CounterUniform(uint64_t seed, uint64_t counter) {
  const uint64_t state =
      seed * 0xd1342543de82ef95u + (counter + 1) * codec::kSplitMixStep;
  const uint64_t z = codec::MixBits(codec::MixBits(state));
  return static_cast<double>(z >> 11) * 0x1.0p-53;
}

}  // namespace atl::engine
