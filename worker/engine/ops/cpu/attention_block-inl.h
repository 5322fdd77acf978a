// Ops::AttendBlock: attention without a mask. Only kernels_*.cc include this
// file. Letters as in attention-inl.h, but P covers the block's keys only.

#pragma once

#include <cstdint>

#include "worker/engine/ops/cpu/attention-inl.h"
#include "worker/engine/ops/cpu/kernels.h"
#include "worker/engine/ops/cpu/vector-inl.h"

namespace atl::engine::ATL_ENGINE_ISA {

// out [rows, t_width] = left [., d_width] right, over all keys.
ATL_ENGINE_INLINE void AllProducts(const Packed& s, int64_t head_dim,
                                   int64_t rows, const float* left,
                                   const float* right, float* out) {
  TileRows<false>(rows, s.t_width, head_dim, left, s.d_width, 1, right,
                  s.t_width, out, s.t_width);
}

// to[i] = to[i] kept + factor block[i].
ATL_ENGINE_INLINE void MergeRow(int64_t n, float kept, float factor,
                                const float* block, float* to) {
  ForVectors(n, [&](int64_t i, auto part) {
    const Vec old = Mul(Load(to + i, part), Set(kept));
    Store(to + i, Fma(Load(block + i, part), Set(factor), old), part);
  });
}

// e^x for x <= 0, with the polynomial of the vector code.
ATL_ENGINE_INLINE float ComputeExp(float x) {
  float out[kLanes];
  Store(out, Exp(Set(x)), All{});
  return out[0];
}

// Forward pass of one head, whose packed queries are in s.q.
ATL_ENGINE_INLINE void MergeBlock(const AttentionTask& task, const Packed& s,
                                  int64_t begin, int64_t end, float* out,
                                  float* log_sum) {
  const int64_t keys = task.key_count, rows = end - begin;
  AllProducts(s, task.head_dim, rows, s.q + begin * s.d_width, s.k_transposed,
              s.p);
  float top[kAttentionBlockRows], total[kAttentionBlockRows];
  for (int64_t i = 0; i < rows; ++i) {
    total[i] = SoftmaxRow(keys - 1, keys, s.p + i * s.t_width, &top[i]);
  }
  TileRows<false>(rows, s.d_width, keys, s.p, s.t_width, 1, s.v, s.d_width,
                  s.block, s.d_width);
  for (int64_t i = 0; i < rows; ++i) {
    const float before = log_sum[begin + i];
    const float own = top[i] + __builtin_logf(total[i]);
    const float high = before > own ? before : own;
    const float low = before > own ? own : before;
    const float after = high + __builtin_logf(1.0f + ComputeExp(low - high));
    MergeRow(task.head_dim, ComputeExp(before - after),
             ComputeExp(own - after) / total[i], s.block + i * s.d_width,
             out + (begin + i) * task.out_stride);
    log_sum[begin + i] = after;
  }
}

void AttendBlock(const AttentionTask& task) {
  const Packed s = Carve(task, task.query_count, task.key_count);
  const int64_t head_dim = task.head_dim;
  PackTransposed(task.key_count, head_dim, s.t_width, task.k, task.kv_stride,
                 s.k_transposed);
  PackRows(task.key_count, head_dim, s.d_width, 1.0f, task.v, task.kv_stride,
           s.v);
  for (int64_t head = 0; head < task.group; ++head) {
    PackRows(task.query_count, head_dim, s.d_width, s.scale,
             task.q + head * head_dim, task.qkv_stride, s.q);
    for (int64_t begin = 0; begin < task.query_count;
         begin += kAttentionBlockRows) {
      MergeBlock(task, s, begin,
                 Smaller(begin + kAttentionBlockRows, task.query_count),
                 task.out + head * head_dim,
                 task.log_sum + head * task.sequence_length);
    }
  }
}

// Replaces s.p by P and s.dp by dS.
ATL_ENGINE_INLINE void BlockScoreGradients(const AttentionTask& task,
                                           const Packed& s, int64_t begin,
                                           int64_t rows, const float* out,
                                           const float* log_sum) {
  for (int64_t i = 0; i < rows; ++i) {
    float* p = s.p + i * s.t_width;
    float* dp = s.dp + i * s.t_width;
    const float* o = out + (begin + i) * task.out_stride;
    const float* d_o = s.d_out + (begin + i) * s.d_width;
    Vec dot = Set(0.0f);
    ForVectors(task.head_dim, [&](int64_t j, auto part) {
      dot = Fma(Load(o + j, part), Load(d_o + j, part), dot);
    });
    const Vec mean = Set(ReduceAdd(dot)), shift = Set(log_sum[begin + i]);
    ForVectors(task.key_count, [&](int64_t j, auto part) {
      const Vec e = Exp(Sub(Load(p + j, part), shift));
      Store(p + j, e, part);
      Store(dp + j, Mul(e, Sub(Load(dp + j, part), mean)), part);
    });
  }
}

// Backward pass of one head: adds to dq, s.dk and s.dv.
ATL_ENGINE_INLINE void BlockGradients(const AttentionTask& task,
                                      const Packed& s, int64_t begin,
                                      int64_t end, const float* out,
                                      const float* log_sum, float* dq) {
  const int64_t rows = end - begin, keys = task.key_count;
  const float* q = s.q + begin * s.d_width;
  const float* d_out = s.d_out + begin * s.d_width;
  AllProducts(s, task.head_dim, rows, q, s.k_transposed, s.p);
  AllProducts(s, task.head_dim, rows, d_out, s.v_transposed, s.dp);
  BlockScoreGradients(task, s, begin, rows, out, log_sum);
  TileRows<false>(rows, s.d_width, keys, s.dp, s.t_width, 1, s.k, s.d_width,
                  s.block, s.d_width);
  for (int64_t i = 0; i < rows; ++i) {
    MergeRow(task.head_dim, 1.0f, s.scale, s.block + i * s.d_width,
             dq + (begin + i) * task.qkv_stride);
  }
  TileRows<true>(keys, s.d_width, rows, s.p, 1, s.t_width, d_out, s.d_width,
                 s.dv, s.d_width);
  TileRows<true>(keys, s.d_width, rows, s.dp, 1, s.t_width, q, s.d_width, s.dk,
                 s.d_width);
}

void AttendBlockBackward(const AttentionTask& task) {
  const Packed s = Carve(task, task.query_count, task.key_count);
  const int64_t head_dim = task.head_dim, keys = task.key_count;
  const int64_t stride = task.kv_stride;
  PackTransposed(keys, head_dim, s.t_width, task.k, stride, s.k_transposed);
  PackTransposed(keys, head_dim, s.t_width, task.v, stride, s.v_transposed);
  PackRows(keys, head_dim, s.d_width, 1.0f, task.k, stride, s.k);
  PackRows(keys, head_dim, s.d_width, 1.0f, task.dk, stride, s.dk);
  PackRows(keys, head_dim, s.d_width, 1.0f, task.dv, stride, s.dv);
  for (int64_t head = 0; head < task.group; ++head) {
    const int64_t column = head * head_dim;
    PackRows(task.query_count, head_dim, s.d_width, s.scale, task.q + column,
             task.qkv_stride, s.q);
    PackRows(task.query_count, head_dim, s.d_width, 1.0f, task.dout + column,
             task.out_stride, s.d_out);
    for (int64_t begin = 0; begin < task.query_count;
         begin += kAttentionBlockRows) {
      BlockGradients(task, s, begin,
                     Smaller(begin + kAttentionBlockRows, task.query_count),
                     task.out + column,
                     task.log_sum + head * task.sequence_length,
                     task.dq + column);
    }
  }
  UnpackRows(keys, head_dim, s.d_width, 1.0f, s.dk, task.dk, stride);
  UnpackRows(keys, head_dim, s.d_width, 1.0f, s.dv, task.dv, stride);
}

}  // namespace atl::engine::ATL_ENGINE_ISA
