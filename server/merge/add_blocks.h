// Adds encoded blocks of one contribution to a merged sum. Pure. Thread-safe.

#pragma once

#include "absl/status/status.h"
#include "base/layout/layout.h"
#include "server/core/merge/merge_rule.h"
#include "server/store/encoded_range.h"

namespace atl::server {

// g = w_0 Dec(x_0) + w_1 Dec(x_1) + ..., one contribution a call, in order.
// `encoded`: `blocks` of contribution `index`; f32 must be aligned. Same bits
// as rule.Add on the decoded values. `g` has the elements of `blocks`.
// DATA_LOSS: a block cannot be decoded, so it changed since its check on
// arrival. `g` is then unspecified.
absl::Status AddBlocks(const MergeRule& rule, const EncodedRange& range,
                       IndexRange blocks, int index, float weight,
                       const char* encoded, float* g);

}  // namespace atl::server
