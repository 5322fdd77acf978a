#include "worker/core/local_update.h"

#include <algorithm>
#include <cstddef>

namespace atl::worker {

void BlendIn(absl::Span<float> x, absl::Span<const float> v, float b) {
  if (b == 0) {
    // 0 x + 1 V would lose the sign of a zero, and is not finite if x is not.
    std::copy(v.begin(), v.end(), x.begin());
    return;
  }
  const float rest = 1.0f - b;
  for (size_t i = 0; i < x.size(); ++i) {
    const float kept = b * x[i];
    const float taken = rest * v[i];
    x[i] = kept + taken;
  }
}

EagerStep::EagerStep(const v1::OuterSpec& outer) {
  switch (outer.optimizer()) {
    case v1::OUTER_OPTIMIZER_KIND_FEDAVG:
      return;
    case v1::OUTER_OPTIMIZER_KIND_MOMENTUM:
    case v1::OUTER_OPTIMIZER_KIND_FEDAVGM:
      beta_ = static_cast<float>(outer.momentum());
      break;
    case v1::OUTER_OPTIMIZER_KIND_NESTEROV:
      beta_ = static_cast<float>(outer.momentum());
      nesterov_ = true;
      break;
    default:
      break;
  }
  rate_ = static_cast<float>(outer.learning_rate());
  kappa_ = nesterov_ ? rate_ * (1.0f + beta_) : rate_;
}

void EagerStep::Foresee(absl::Span<const float> anchor, float weight,
                        absl::Span<float> x, absl::Span<float> p,
                        absl::Span<float> m) const {
  for (size_t i = 0; i < x.size(); ++i) {
    const float gradient = anchor[i] - x[i];
    const float own = weight * gradient;
    const float kept = beta_ * m[i];
    const float momentum = kept + own;
    float direction = momentum;
    if (nesterov_) {
      const float ahead = beta_ * momentum;
      direction = own + ahead;
    }
    const float step = rate_ * direction;
    p[i] = anchor[i] - step;
    x[i] = p[i];
    m[i] = momentum;
  }
}

void EagerStep::Correct(absl::Span<const float> v, absl::Span<const float> p,
                        absl::Span<float> x, absl::Span<float> m) const {
  for (size_t i = 0; i < x.size(); ++i) {
    const float others = (p[i] - v[i]) / kappa_;
    m[i] = m[i] + others;
    const float correction = v[i] - p[i];
    x[i] = x[i] + correction;
  }
}

}  // namespace atl::worker
