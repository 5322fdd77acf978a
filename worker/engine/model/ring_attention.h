// Causal attention over sequences that a cp group divides. Keys and values
// travel round the ring of ranks while each rank computes.
//
// Each rank keeps the rows of its queries and outputs. Rank c of n has chunk c
// and chunk 2 n - 1 - c of 2 n (unit_slice.h). Keys then come from three kinds
// of ranks:
//
//   this rank     causal mask
//   a lower rank  all queries see the first half, none sees the second
//   a higher rank the second half of the queries sees all, the first none
//
// So each step after the first is T^2 / 2 products without a mask, on every
// rank. The softmax over each step's keys is merged by its logarithm; scores
// exist only for a few rows of T at a time. The backward pass sends keys and
// values round again. The sum of their gradients follows them and ends on its
// own rank.
//
// Without a cp group this is plain attention. Thread-compatible.

#ifndef WORKER_ENGINE_MODEL_RING_ATTENTION_H_
#define WORKER_ENGINE_MODEL_RING_ATTENTION_H_

#include <cstdint>

#include "worker/engine/model/workspace.h"
#include "worker/engine/ops/ops.h"

namespace atl::engine {

// The rotary table [T, D] of this rank's `sequence_length` positions; null if
// positions are learned.
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

#endif  // WORKER_ENGINE_MODEL_RING_ATTENTION_H_
