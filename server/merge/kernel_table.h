// The vectorised kernels for the core's rules. Thread-safe; stateless.

#pragma once

#include "server/core/merge/merge_rule.h"
#include "server/core/outer_optimizer/outer_optimizer.h"

namespace atl::server {

const OuterKernels& FastOuterKernels();
const MergeKernels& FastMergeKernels();

}  // namespace atl::server
