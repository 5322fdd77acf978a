// m = momentum m + g; theta = theta - lr m (arXiv 1909.06335): momentum.cc's
// rule under the name that federated averaging gives it.

#include "server/core/outer_optimizer/choices.h"

namespace atl::server {

MadeOptimizer MakeFedAvgM(const v1::OuterSpec& spec) {
  return MakeMomentum(spec, "fedavgm");
}

}  // namespace atl::server
