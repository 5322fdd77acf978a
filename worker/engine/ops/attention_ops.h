// Rotary embedding and attention. A part of BasicOps; the rules in ops.h apply.

#pragma once

#include <cstdint>

#include "worker/engine/ops/shapes.h"

namespace atl::engine {

template <typename T>
class AttentionOps {
 public:
  virtual ~AttentionOps() = default;

  // In place on the queries and keys of qkv. Row r has position r mod T. For a
  // head's channels a = z[i], b = z[i + D/2] (Hugging Face's half rotation):
  // a' = a cos - b sin, b' = b cos + a sin. `table` is [T, D]: per position D/2
  // cosines, then D/2 sines. `inverse` rotates back: it is also the gradient.
  virtual void Rope(const AttentionShape& shape, const T* table, bool inverse,
                    T* qkv) = 0;

  // Causal: out [R, H D] = softmax(q k^T / sqrt(D)) v. log_sum [B, H, T]
  // receives the logarithm of each softmax's denominator, for the backward
  // pass. Scratch is O(T) a thread, never T x T.
  virtual void Attention(const AttentionShape& shape, const T* qkv, T* out,
                         T* log_sum) = 0;
  // Overwrites all of dqkv.
  virtual void AttentionBackward(const AttentionShape& shape, const T* qkv,
                                 const T* out, const T* log_sum, const T* dout,
                                 T* dqkv) = 0;

  // --- Blocks of keys, where ranks share a sequence -----------------------

  // Adds a block of keys to the attention over other keys in `out` and
  // `log_sum`. With l the block's own log_sum and o its own output:
  // log_sum' = log(e^log_sum + e^l),
  // out' = e^(log_sum - log_sum') out + e^(l - log_sum') o.
  virtual void AttendBlock(const AttentionBlock& block, const T* qkv,
                           const T* keys_values, T* out, T* log_sum) = 0;
  // `out` and `log_sum` are over all keys. Adds to the block's query rows of
  // dqkv and to its rows of dkeys_values.
  virtual void AttendBlockBackward(const AttentionBlock& block, const T* qkv,
                                   const T* keys_values, const T* out,
                                   const T* log_sum, const T* dout, T* dqkv,
                                   T* dkeys_values) = 0;
};

}  // namespace atl::engine
