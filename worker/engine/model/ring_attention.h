// Causal attention over sequences that a cp group divides. Keys and values
// travel round the ring of ranks while each rank computes. Thread-compatible.
// Without a cp group this is plain attention.
//
// Queries and outputs stay. Rank c of n has chunk c and chunk 2 n - 1 - c of 2
// n (unit_slice.h). So the keys of this rank need the causal mask. All queries
// see the first half of a lower rank's keys, and none sees the second. The
// second half of the queries sees all keys of a higher rank, and the first
// none. So each later step is T^2 / 2 products without a mask, on every rank.
//
// Outputs of the steps merge by the logarithm of their softmax sums. Scores
// exist only for a few rows of T at a time. The backward pass sends keys and
// values round again; the sum of their gradients follows and ends at home.

#pragma once

#include <cstdint>

#include "worker/engine/model/workspace.h"
#include "worker/engine/ops/ops.h"

namespace atl::engine {

// The rotary table [T, D] of this rank's positions; null if they are learned.
template <typename T>
const T* LocalRopeTable(Workspace<T>& work, int64_t sequence_length);

// Ops::Attention. `shape` describes this rank's part of the sequences.
template <typename T>
void RingAttention(Workspace<T>& work, const AttentionShape& shape,
                   const T* qkv, T* out, T* log_sum);

// Ops::AttentionBackward. Writes all of dqkv, including what the queries of all
// ranks add to this rank's keys and values.
template <typename T>
void RingAttentionBackward(Workspace<T>& work, const AttentionShape& shape,
                           const T* qkv, const T* out, const T* log_sum,
                           const T* dout, T* dqkv);

}  // namespace atl::engine
