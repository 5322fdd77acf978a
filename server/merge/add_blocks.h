// Takes encoded blocks of one contribution into a merged sum.
//
// Pure. Thread-safe.

#ifndef SERVER_MERGE_ADD_BLOCKS_H_
#define SERVER_MERGE_ADD_BLOCKS_H_

#include "absl/status/status.h"
#include "base/layout/layout.h"
#include "server/core/merge/merge_rule.h"
#include "server/store/encoded_range.h"

namespace atl::server {

// g = w_0 Dec(x_0) + w_1 Dec(x_1) + ..., one contribution a call, in order:
// `blocks` of contribution number `index`, whose encoding is `encoded`, aligned
// as float if that is f32. The bits are those of rule.Add on what it decodes
// to. `g` has the elements of `blocks`.
//
// DATA_LOSS: a block cannot be decoded; it was looked at when it came, so it
// has changed since. `g` is then unspecified.
absl::Status AddBlocks(const MergeKernels& kernels, const MergeRule& rule,
                       const EncodedRange& range, IndexRange blocks, int index,
                       float weight, const char* encoded, float* g);

}  // namespace atl::server

#endif  // SERVER_MERGE_ADD_BLOCKS_H_
