// Causal attention over sequences that the ranks of a cp group have in parts:
// keys and values travel round the ring of ranks while each rank computes.
//
// Each rank has its queries' rows and their outputs all the while. With the
// chunks of unit_slice.h, chunk c and chunk 2 n - 1 - c of 2 n on rank c of n:
//
//   its own keys          are causal as they lie
//   those of a rank below: its first half is seen by all queries, its second by
//                         none
//   those of a rank above: all are seen by the second half of the queries, none
//                         by the first
//
// so that each step after the first is T^2 / 2 products without a mask, on
// every rank. Softmax of what was seen so far is merged by its logarithm;
// scores never exist beyond a few rows of T. The backward pass sends keys and
// values round again, and behind them the sum of their gradients, which ends at
// home.
//
// Without a cp group it is the plain attention. Thread-compatible.

#pragma once

#include <cstdint>

#include "worker/engine/model/workspace.h"
#include "worker/engine/ops/ops.h"

namespace atl::engine {

// The rotary table [T, D] of this rank's `sequence_length` positions; null if
// positions are learned.
template <typename T>
const T* LocalRopeTable(Workspace<T>& work, int64_t sequence_length);

// Ops::Attention, where `shape` is of this rank's part of the sequences.
template <typename T>
void RingAttention(Workspace<T>& work, const AttentionShape& shape,
                   const T* qkv, T* out, T* log_sum);

// Ops::AttentionBackward: writes all of dqkv, with what the queries of all
// ranks add to this rank's keys and values.
template <typename T>
void RingAttentionBackward(Workspace<T>& work, const AttentionShape& shape,
                           const T* qkv, const T* out, const T* log_sum,
                           const T* dout, T* dqkv);

}  // namespace atl::engine
