// The shapes and numbers that operations take. Pure.
//
// Includes no code of the program: kernels compiled for other machines include
// this file instead of ops.h.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace atl::engine {

// Shape of a causal attention with grouped queries. A row of `qkv` holds H
// query heads, then G key heads, then G value heads, each of D channels: [R, (H
// + 2 G) D], R = B T. Query head h reads key/value head h / (H / G).
struct AttentionShape {
  int64_t batch = 1;            // B
  int64_t sequence_length = 1;  // T
  int64_t head_count = 1;       // H
  int64_t kv_head_count = 1;    // G, divides H
  int64_t head_dim = 2;         // D

  constexpr int64_t rows() const { return batch * sequence_length; }
  constexpr int64_t qkv_size() const {
    return (head_count + 2 * kv_head_count) * head_dim;
  }
  constexpr int64_t out_size() const { return head_count * head_dim; }
};

// An attention without a mask. Queries are the rows [query_begin, query_begin +
// query_count) of each sequence of `shape`. Keys are the rows [key_begin,
// key_begin + key_count) of each sequence of keys and values [B, T, 2 G D],
// which may come from another rank. A row holds G key heads, then G value
// heads.
struct AttentionBlock {
  AttentionShape shape;
  int64_t query_begin = 0;
  int64_t query_count = 1;
  int64_t key_begin = 0;
  int64_t key_count = 1;

  constexpr int64_t kv_size() const {
    return 2 * shape.kv_head_count * shape.head_dim;
  }
};

struct RouteShape {
  int64_t rows = 1;               // R
  int64_t expert_count = 1;       // E
  int64_t experts_per_token = 1;  // K, at most E and kExpertsPerTokenMax.
  int64_t group_rows = 1;  // Consecutive rows that share a capacity.
  int64_t capacity = 1;    // Most rows of a group that an expert takes.

  constexpr int64_t group_count() const { return rows / group_rows; }  // N
};
inline constexpr int64_t kExpertsPerTokenMax = 16;

template <typename T>
struct AdamWStep {
  T learning_rate = 0;
  T beta1 = 0;
  T beta2 = 0;
  T epsilon = 0;
  T weight_decay = 0;
  T bias_correction1 = 1;       // 1 - beta1^t
  T bias_correction2_sqrt = 1;  // sqrt(1 - beta2^t)
  T gradient_scale = 1;         // Multiplies g; from clipping.
};

// The formula of BasicOps::ClipInto, with the same `sums`.
template <typename T>
T ClipScale(const double* sums, double clip_norm) {
  const double norm = std::sqrt(sums[1]);
  if (!std::isfinite(sums[0]) || !std::isfinite(norm)) {
    return std::numeric_limits<T>::quiet_NaN();
  }
  if (clip_norm <= 0) return 1;
  return static_cast<T>(std::min(1.0, clip_norm / (norm + 1e-6)));
}

}  // namespace atl::engine
