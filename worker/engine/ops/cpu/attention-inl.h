// Causal attention of one sequence, for one key/value head and its query heads.
// Only kernels_*.cc include this file; see vector-inl.h.
//
// kAttentionBlockRows queries are computed at a time, against all keys before
// them, so scratch is O(T). Packed rows are padded with zeros to whole vectors.
// The packed queries include kScale = 1 / sqrt(D).
//
//   S  = (kScale Q) K^T        P = softmax(S), lower triangle   O = P V
//   dP = dO V^T                dS = P (dP - rowsum(dO O))
//   dQ = kScale dS K           dK = dS^T (kScale Q)             dV = P^T dO

#pragma once

#include <cstdint>

#include "worker/engine/ops/cpu/kernels.h"
#include "worker/engine/ops/cpu/vector-inl.h"

namespace atl::engine::ATL_ENGINE_ISA {

ATL_ENGINE_INLINE int64_t Smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}
ATL_ENGINE_INLINE int64_t Larger(int64_t a, int64_t b) { return a > b ? a : b; }
ATL_ENGINE_INLINE int64_t RoundUp(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

// c[i, j] = (kAdd ? c[i, j] : 0) + sum over p of a[i, p] b[p, j] for kRows rows
// and kVectors whole vectors of columns. One stride of `a` is 1, in elements.
template <int kRows, int kVectors, bool kAdd>
ATL_ENGINE_INLINE void Tile(int64_t depth, const float* a, int64_t a_row,
                            int64_t a_column, const float* b, int64_t b_row,
                            float* c, int64_t c_row) {
  Vec sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) {
      sum[i][j] = kAdd ? Load(c + i * c_row + j * kLanes, All{}) : Set(0.0f);
    }
  }
  for (int64_t p = 0; p < depth; ++p) {
    Vec right[kVectors];
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) {
      right[j] = Load(b + p * b_row + j * kLanes, All{});
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const Vec left = Set(a[i * a_row + p * a_column]);
#pragma GCC unroll 16
      for (int j = 0; j < kVectors; ++j) {
        sum[i][j] = Fma(left, right[j], sum[i][j]);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) {
      Store(c + i * c_row + j * kLanes, sum[i][j], All{});
    }
  }
}

// Tile over `columns`, a multiple of kLanes.
template <int kRows, bool kAdd>
void TileRow(int64_t columns, int64_t depth, const float* a, int64_t a_row,
             int64_t a_column, const float* b, int64_t b_row, float* c,
             int64_t c_row) {
  int64_t j = 0;
  for (; j + 2 * kLanes <= columns; j += 2 * kLanes) {
    Tile<kRows, 2, kAdd>(depth, a, a_row, a_column, b + j, b_row, c + j, c_row);
  }
  if (j < columns) {
    Tile<kRows, 1, kAdd>(depth, a, a_row, a_column, b + j, b_row, c + j, c_row);
  }
}

// TileRow for any number of rows.
template <bool kAdd>
ATL_ENGINE_INLINE void TileRows(int64_t rows, int64_t columns, int64_t depth,
                                const float* a, int64_t a_row, int64_t a_column,
                                const float* b, int64_t b_row, float* c,
                                int64_t c_row) {
  while (rows > 0) {
    int64_t done = 0;
    if (rows >= kTileRows) {
      done = kTileRows;
      TileRow<kTileRows, kAdd>(columns, depth, a, a_row, a_column, b, b_row, c,
                               c_row);
    } else if (rows >= 4) {
      done = 4;
      TileRow<4, kAdd>(columns, depth, a, a_row, a_column, b, b_row, c, c_row);
    } else if (rows >= 2) {
      done = 2;
      TileRow<2, kAdd>(columns, depth, a, a_row, a_column, b, b_row, c, c_row);
    } else {
      done = 1;
      TileRow<1, kAdd>(columns, depth, a, a_row, a_column, b, b_row, c, c_row);
    }
    rows -= done;
    a += done * a_row;
    c += done * c_row;
  }
}

// to[i, 0..width) = scale from[i, 0..columns), padded with zeros.
ATL_ENGINE_INLINE void PackRows(int64_t rows, int64_t columns, int64_t width,
                                float scale, const float* from, int64_t stride,
                                float* to) {
  for (int64_t i = 0; i < rows; ++i) {
    ForVectors(columns, [&](int64_t j, auto part) {
      const Vec v = Mul(Load(from + i * stride + j, part), Set(scale));
      Store(to + i * width + j, v, All{});
    });
    for (int64_t j = RoundUp(columns, kLanes); j < width; j += kLanes) {
      Store(to + i * width + j, Set(0.0f), All{});
    }
  }
}

// to[j, i] = from[i, j].
ATL_ENGINE_INLINE void Transpose4x4(const float* from, int64_t from_row,
                                    float* to, int64_t to_row) {
  const __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + from_row);
  const __m128 c = _mm_loadu_ps(from + 2 * from_row);
  const __m128 d = _mm_loadu_ps(from + 3 * from_row);
  const __m128 ab_low = _mm_unpacklo_ps(a, b), ab_high = _mm_unpackhi_ps(a, b);
  const __m128 cd_low = _mm_unpacklo_ps(c, d), cd_high = _mm_unpackhi_ps(c, d);
  _mm_storeu_ps(to, _mm_movelh_ps(ab_low, cd_low));
  _mm_storeu_ps(to + to_row, _mm_movehl_ps(cd_low, ab_low));
  _mm_storeu_ps(to + 2 * to_row, _mm_movelh_ps(ab_high, cd_high));
  _mm_storeu_ps(to + 3 * to_row, _mm_movehl_ps(cd_high, ab_high));
}

// to[j, i] = from[i, j]. Columns of `to` from `rows` to `width` become zero.
ATL_ENGINE_INLINE void PackTransposed(int64_t rows, int64_t columns,
                                      int64_t width, const float* from,
                                      int64_t stride, float* to) {
  const int64_t whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
  for (int64_t i = 0; i < whole_rows; i += 4) {
    for (int64_t j = 0; j < whole_columns; j += 4) {
      Transpose4x4(from + i * stride + j, stride, to + j * width + i, width);
    }
  }
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = j < whole_columns ? whole_rows : 0; i < rows; ++i) {
      to[j * width + i] = from[i * stride + j];
    }
    for (int64_t i = rows; i < width; ++i) to[j * width + i] = 0.0f;
  }
}

// to[i, 0..columns) = scale from[i, 0..columns).
ATL_ENGINE_INLINE void UnpackRows(int64_t rows, int64_t columns, int64_t width,
                                  float scale, const float* from, float* to,
                                  int64_t stride) {
  for (int64_t i = 0; i < rows; ++i) {
    ForVectors(columns, [&](int64_t j, auto part) {
      const Vec v = Mul(Load(from + i * width + j, part), Set(scale));
      Store(to + i * stride + j, v, part);
    });
  }
}

ATL_ENGINE_INLINE void ZeroRow(int64_t begin, int64_t end, float* row) {
  if (begin < end) {
    ForVectors(end - begin, [&](int64_t i, auto part) {
      Store(row + begin + i, Set(0.0f), part);
    });
  }
}

// The packed operands in a task's scratch, and their padded sizes.
struct Packed {
  int64_t t_width;                     // T padded to whole vectors
  int64_t d_width;                     // D padded to whole vectors
  float scale;                         // 1 / sqrt(D)
  float *k_transposed, *v_transposed;  // [D, t_width]
  float *k, *v, *q, *d_out, *dk, *dv;  // [T, d_width]
  float *p, *dp;                       // [block, t_width]
  float* block;                        // [block, d_width]
};

ATL_ENGINE_INLINE Packed Carve(const AttentionTask& task, int64_t rows,
                               int64_t keys) {
  Packed s;
  s.t_width = RoundUp(keys, kLanes);
  s.d_width = RoundUp(task.head_dim, kLanes);
  s.scale = 1.0f / __builtin_sqrtf(static_cast<float>(task.head_dim));
  float* next = task.scratch;
  auto take = [&next](int64_t n) {
    float* at = next;
    next += RoundUp(n, 16);
    return at;
  };
  s.k_transposed = take(task.head_dim * s.t_width);
  s.v_transposed = take(task.head_dim * s.t_width);
  s.k = take(keys * s.d_width);
  s.v = take(keys * s.d_width);
  s.q = take(rows * s.d_width);
  s.d_out = take(rows * s.d_width);
  s.dk = take(keys * s.d_width);
  s.dv = take(keys * s.d_width);
  s.p = take(kAttentionBlockRows * s.t_width);
  s.dp = take(kAttentionBlockRows * s.t_width);
  s.block = take(kAttentionBlockRows * s.d_width);
  return s;
}

// out = left right for query rows [begin, end), at least where they see the
// key. left [T, d_width], right [D, t_width], out [block, t_width].
ATL_ENGINE_INLINE void LowerProducts(const Packed& s, int64_t head_dim,
                                     int64_t begin, int64_t end,
                                     const float* left, const float* right,
                                     float* out) {
  for (int64_t i = begin; i < end; i += kTileRows) {
    const int64_t rows = Smaller(kTileRows, end - i);
    TileRows<false>(rows, RoundUp(i + rows, kLanes), head_dim,
                    left + i * s.d_width, s.d_width, 1, right, s.t_width,
                    out + (i - begin) * s.t_width, s.t_width);
  }
}

// Replaces the scores of row `row` with e^(score - top) for its first row + 1
// keys and with zero from there to `end`. Returns their sum, and top in *top.
ATL_ENGINE_INLINE float SoftmaxRow(int64_t row, int64_t end, float* scores,
                                   float* top) {
  const Vec lowest = Set(-__builtin_inff());
  Vec highest = lowest;
  ForVectors(row + 1, [&](int64_t i, auto part) {
    highest = Max(highest, Keep(Load(scores + i, part), lowest, part));
  });
  *top = ReduceMax(highest);
  Vec total = Set(0.0f);
  ForVectors(row + 1, [&](int64_t i, auto part) {
    const Vec e =
        Keep(Exp(Sub(Load(scores + i, part), Set(*top))), Set(0.0f), part);
    Store(scores + i, e, part);
    total = Add(total, e);
  });
  ZeroRow(row + 1, end, scores);
  return ReduceAdd(total);
}

// Forward pass of one query head, rows [begin, end).
ATL_ENGINE_INLINE void ForwardBlock(const AttentionTask& task, const Packed& s,
                                    int64_t begin, int64_t end, float* out,
                                    float* log_sum) {
  LowerProducts(s, task.head_dim, begin, end, s.q, s.k_transposed, s.p);
  float inverse[kAttentionBlockRows];
  for (int64_t i = begin; i < end; ++i) {
    float top = 0;
    const float total = SoftmaxRow(i, end, s.p + (i - begin) * s.t_width, &top);
    inverse[i - begin] = 1.0f / total;
    log_sum[i] = top + __builtin_logf(total);
  }
  for (int64_t i = begin; i < end; i += kTileRows) {
    const int64_t rows = Smaller(kTileRows, end - i);
    TileRows<false>(rows, s.d_width, i + rows, s.p + (i - begin) * s.t_width,
                    s.t_width, 1, s.v, s.d_width,
                    s.block + (i - begin) * s.d_width, s.d_width);
  }
  for (int64_t i = begin; i < end; ++i) {
    UnpackRows(1, task.head_dim, s.d_width, inverse[i - begin],
               s.block + (i - begin) * s.d_width, out + i * task.out_stride,
               task.out_stride);
  }
}

void Attention(const AttentionTask& task) {
  const int64_t length = task.sequence_length, head_dim = task.head_dim;
  const Packed s = Carve(task, length, length);
  PackTransposed(length, head_dim, s.t_width, task.k, task.qkv_stride,
                 s.k_transposed);
  PackRows(length, head_dim, s.d_width, 1.0f, task.v, task.qkv_stride, s.v);
  for (int64_t head = 0; head < task.group; ++head) {
    PackRows(length, head_dim, s.d_width, s.scale, task.q + head * head_dim,
             task.qkv_stride, s.q);
    for (int64_t begin = 0; begin < length; begin += kAttentionBlockRows) {
      ForwardBlock(task, s, begin, Smaller(begin + kAttentionBlockRows, length),
                   task.out + head * head_dim, task.log_sum + head * length);
    }
  }
}

// Replaces s.p by P and s.dp by dS, for rows [begin, end).
ATL_ENGINE_INLINE void ScoreGradients(const AttentionTask& task,
                                      const Packed& s, int64_t begin,
                                      int64_t end, const float* out,
                                      const float* log_sum) {
  for (int64_t i = begin; i < end; ++i) {
    float* p = s.p + (i - begin) * s.t_width;
    float* dp = s.dp + (i - begin) * s.t_width;
    const float* o = out + i * task.out_stride;
    const float* d_o = s.d_out + i * s.d_width;
    Vec dot = Set(0.0f);
    ForVectors(task.head_dim, [&](int64_t j, auto part) {
      dot = Fma(Load(o + j, part), Load(d_o + j, part), dot);
    });
    const Vec mean = Set(ReduceAdd(dot)), shift = Set(log_sum[i]);
    ForVectors(i + 1, [&](int64_t j, auto part) {
      const Vec e = Exp(Sub(Load(p + j, part), shift));
      Store(p + j, e, part);
      Store(dp + j, Mul(e, Sub(Load(dp + j, part), mean)), part);
    });
    ZeroRow(i + 1, end, p);
    ZeroRow(i + 1, end, dp);
  }
}

// Backward pass of one query head: writes dq, adds to dk and dv.
ATL_ENGINE_INLINE void BackwardBlock(const AttentionTask& task, const Packed& s,
                                     int64_t begin, int64_t end,
                                     const float* out, const float* log_sum,
                                     float* dq) {
  LowerProducts(s, task.head_dim, begin, end, s.q, s.k_transposed, s.p);
  LowerProducts(s, task.head_dim, begin, end, s.d_out, s.v_transposed, s.dp);
  ScoreGradients(task, s, begin, end, out, log_sum);
  for (int64_t i = begin; i < end; i += kTileRows) {
    const int64_t rows = Smaller(kTileRows, end - i);
    TileRows<false>(rows, s.d_width, i + rows, s.dp + (i - begin) * s.t_width,
                    s.t_width, 1, s.k, s.d_width,
                    s.block + (i - begin) * s.d_width, s.d_width);
  }
  UnpackRows(end - begin, task.head_dim, s.d_width, s.scale, s.block,
             dq + begin * task.qkv_stride, task.qkv_stride);
  for (int64_t u = 0; u < end; u += kTileRows) {
    const int64_t rows = Smaller(kTileRows, end - u);
    const int64_t first = Larger(begin, u);  // Earlier queries do not see u.
    const int64_t at = (first - begin) * s.t_width + u;
    TileRows<true>(rows, s.d_width, end - first, s.p + at, 1, s.t_width,
                   s.d_out + first * s.d_width, s.d_width, s.dv + u * s.d_width,
                   s.d_width);
    TileRows<true>(rows, s.d_width, end - first, s.dp + at, 1, s.t_width,
                   s.q + first * s.d_width, s.d_width, s.dk + u * s.d_width,
                   s.d_width);
  }
}

void AttentionBackward(const AttentionTask& task) {
  const int64_t length = task.sequence_length, head_dim = task.head_dim;
  const Packed s = Carve(task, length, length);
  const int64_t stride = task.qkv_stride;
  PackTransposed(length, head_dim, s.t_width, task.k, stride, s.k_transposed);
  PackTransposed(length, head_dim, s.t_width, task.v, stride, s.v_transposed);
  PackRows(length, head_dim, s.d_width, 1.0f, task.k, stride, s.k);
  ZeroRow(0, length * s.d_width, s.dk);
  ZeroRow(0, length * s.d_width, s.dv);
  for (int64_t head = 0; head < task.group; ++head) {
    const int64_t column = head * head_dim;
    PackRows(length, head_dim, s.d_width, s.scale, task.q + column, stride,
             s.q);
    PackRows(length, head_dim, s.d_width, 1.0f, task.dout + column,
             task.out_stride, s.d_out);
    for (int64_t begin = 0; begin < length; begin += kAttentionBlockRows) {
      BackwardBlock(
          task, s, begin, Smaller(begin + kAttentionBlockRows, length),
          task.out + column, task.log_sum + head * length, task.dq + column);
    }
  }
  UnpackRows(length, head_dim, s.d_width, 1.0f, s.dk, task.dk, stride);
  UnpackRows(length, head_dim, s.d_width, 1.0f, s.dv, task.dv, stride);
}

}  // namespace atl::engine::ATL_ENGINE_ISA
