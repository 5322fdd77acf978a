// Causal attention on tensor cores. q, k, v, the probabilities and their
// gradients are rounded to bfloat16; sums and the softmax are f32. Otherwise as
// in attention.cu: tiles, a running softmax, and two backward passes.
//
// A block has 4 warps. A warp computes 16 rows of a tile (queries, or keys in
// KeysKernel) against all its columns, as fragments of mma.m16n8k16. With g =
// lane / 4 and t = lane % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
//
//   A [16, 16]  a0 (g, 2t..), a1 (g + 8, 2t..), a2 (g, 2t + 8..),
//               a3 (g + 8, 2t + 8..)
//   B [16, 8]   b0 (2t.., g), b1 (2t + 8.., g)
//   C [16, 8]   c0 (g, 2t), c1 (g, 2t + 1), c2 (g + 8, 2t), c3 (g + 8, 2t + 1)
//
// So the C of one product, packed in pairs, is the A of the next.

#include <cstdint>

#include "worker/engine/ops/cuda/device.h"
#include "worker/engine/ops/cuda/kernels.h"
#include "worker/engine/ops/cuda/plan/launch_plan.h"

namespace atl::engine::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kOwn = 64;    // Rows of a block: 16 per warp.
constexpr int kOther = 32;  // Columns per step.
constexpr int kPadding =
    8;  // Elements per row in shared memory, against bank conflicts.

// Rounds two numbers to bfloat16; the first is in the low half.
__device__ inline uint32_t Pack(float low, float high) {
#ifdef __CUDACC__
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
#else
  return static_cast<uint32_t>(ToBf16(low)) |
         static_cast<uint32_t>(ToBf16(high)) << 16;
#endif
}

struct FragmentA {
  uint32_t x[4];
};
struct FragmentB {
  uint32_t x[2];
};

// c = c + a b.
__device__ inline void Multiply(const FragmentA& a, const FragmentB& b,
                                float (&c)[4]) {
#ifdef __CUDACC__
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]),
        "r"(b.x[1]));
#else
  struct Both {
    FragmentA a;
    FragmentB b;
  };
  const Both own = {a, b};
  Both all[kWarpSize];
  emulator::ExchangeAll(own, all);
  const auto half = [](uint32_t pair, int k) {
    return FromBf16(static_cast<uint16_t>(k % 2 == 0 ? pair : pair >> 16));
  };
  const int g = emulator::Lane() / 4, t = emulator::Lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = g + i / 2 * 8, column = 2 * t + i % 2;
    for (int k = 0; k < 16; ++k) {
      const int pair = k % 8 / 2;
      c[i] += half(all[row % 8 * 4 + pair].a.x[row / 8 + k / 8 * 2], k) *
              half(all[column * 4 + pair].b.x[k / 8], k);
    }
  }
#endif
}

// A tile [rows][kColumns] of bfloat16 in shared memory, two per word.
template <int kColumns>
struct Tile {
  static constexpr int kStride = (kColumns + kPadding) / 2;  // In words.
  static constexpr int Words(int rows) { return rows * kStride; }
  uint32_t* data;

  // Rows [row, row + 16) and columns [k, k + 16).
  __device__ FragmentA A(int row, int k) const {
    const int g = threadIdx.x % kWarpSize / 4, t = threadIdx.x % 4;
    const uint32_t* at = data + (row + g) * kStride + k / 2 + t;
    return {{at[0], at[8 * kStride], at[4], at[8 * kStride + 4]}};
  }
  // The transpose of rows [row, row + 8) and columns [k, k + 16).
  __device__ FragmentB B(int row, int k) const {
    const int g = threadIdx.x % kWarpSize / 4, t = threadIdx.x % 4;
    const uint32_t* at = data + (row + g) * kStride + k / 2 + t;
    return {{at[0], at[4]}};
  }
};

// A head of one sequence: row r begins at data + r stride.
struct Head {
  const float* data;
  int64_t stride, rows;
  int width;
  __device__ float At(int64_t r, int c) const {
    return r < rows && c < width ? data[r * stride + c] : 0.0f;
  }
};

template <int kWidth, int kRows>
__device__ inline void Load(const Head& head, int64_t first,
                            const Tile<kWidth>& to) {
  for (int i = threadIdx.x; i < kRows * kWidth / 2; i += kThreads) {
    const int r = i / (kWidth / 2), c = i % (kWidth / 2) * 2;
    to.data[r * Tile<kWidth>::kStride + c / 2] =
        Pack(head.At(first + r, c), head.At(first + r, c + 1));
  }
}

// Transposed: row c of the tile is channel c.
template <int kWidth, int kRows>
__device__ inline void LoadAcross(const Head& head, int64_t first,
                                  const Tile<kRows>& to) {
  for (int i = threadIdx.x; i < kRows / 2 * kWidth; i += kThreads) {
    const int r = i / kWidth * 2, c = i % kWidth;
    to.data[c * Tile<kRows>::kStride + r / 2] =
        Pack(head.At(first + r, c), head.At(first + r + 1, c));
  }
}

// out = rows [row, row + 16) of a times all kN rows of b, transposed.
template <int kWidth, int kN>
__device__ inline void Dots(const Tile<kWidth>& a, int row,
                            const Tile<kWidth>& b, float (&out)[kN / 8][4]) {
#pragma unroll
  for (int n = 0; n < kN / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) out[n][i] = 0;
  }
#pragma unroll
  for (int k = 0; k < kWidth; k += 16) {
    const FragmentA left = a.A(row, k);
#pragma unroll
    for (int n = 0; n < kN / 8; ++n) Multiply(left, b.B(n * 8, k), out[n]);
  }
}

// sum += weights [16, kN] times values. The rows of `across` are channels.
template <int kWidth, int kN>
__device__ inline void AddWeighted(const float (&weights)[kN / 8][4],
                                   const Tile<kN>& across,
                                   float (&sum)[kWidth / 8][4]) {
#pragma unroll
  for (int k = 0; k < kN / 16; ++k) {
    const float(&low)[4] = weights[2 * k];
    const float(&high)[4] = weights[2 * k + 1];
    const FragmentA left = {{Pack(low[0], low[1]), Pack(low[2], low[3]),
                             Pack(high[0], high[1]), Pack(high[2], high[3])}};
#pragma unroll
    for (int c = 0; c < kWidth / 8; ++c) {
      Multiply(left, across.B(c * 8, k * 16), sum[c]);
    }
  }
}

// Writes a warp's 16 rows from `row` on.
template <int kWidth>
__device__ inline void Store(const float (&from)[kWidth / 8][4], int64_t row,
                             int64_t rows, int width, int64_t stride,
                             float* head) {
  const int g = threadIdx.x % kWarpSize / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int c = 0; c < kWidth / 8; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t r = row + g + i / 2 * 8;
      const int channel = c * 8 + 2 * t + i % 2;
      if (r < rows && channel < width) head[r * stride + channel] = from[c][i];
    }
  }
}

// Late tiles start first: they have more keys before them.
struct Place {
  int64_t batch, head, first;
};
__device__ inline Place ToPlace(int64_t length, int64_t heads) {
  const int64_t tiles = (length + kOwn - 1) / kOwn;
  const int64_t others = blockIdx.x / tiles;
  return {others / heads, others % heads,
          (tiles - 1 - blockIdx.x % tiles) * kOwn};
}

// Head h of qkv: H query heads, then G key heads, then G value heads.
__device__ inline Head QkvHead(const AttentionShape& s, const float* qkv,
                               int64_t batch, int64_t h) {
  return {qkv + batch * s.sequence_length * s.qkv_size() + h * s.head_dim,
          s.qkv_size(), s.sequence_length, static_cast<int>(s.head_dim)};
}
__device__ inline Head OutHead(const AttentionShape& s, const float* out,
                               int64_t batch, int64_t h) {
  return {out + batch * s.sequence_length * s.out_size() + h * s.head_dim,
          s.out_size(), s.sequence_length, static_cast<int>(s.head_dim)};
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(AttentionShape s, float scale, const float* qkv, float* out,
                  float* log_sum) {
  ATL_DYNAMIC_SHARED(uint32_t, shared);
  const Tile<kWidth> q = {shared};
  const Tile<kWidth> k = {q.data + Tile<kWidth>::Words(kOwn)};
  const Tile<kOther> v = {k.data + Tile<kWidth>::Words(kOther)};  // Transposed.
  const int64_t length = s.sequence_length;
  const Place at = ToPlace(length, s.head_count);
  const int64_t kv = s.head_count + at.head / (s.head_count / s.kv_head_count);
  const Head keys = QkvHead(s, qkv, at.batch, kv);
  const Head values = QkvHead(s, qkv, at.batch, kv + s.kv_head_count);
  const int warp_row = threadIdx.x / kWarpSize * 16;
  const int g = threadIdx.x % kWarpSize / 4, t = threadIdx.x % 4;
  Load<kWidth, kOwn>(QkvHead(s, qkv, at.batch, at.head), at.first, q);
  float top[2] = {-HUGE_VALF, -HUGE_VALF}, total[2] = {0, 0};
  float sum[kWidth / 8][4] = {};
  const int64_t past = at.first + kOwn < length ? at.first + kOwn : length;
  for (int64_t u = 0; u < past; u += kOther) {
    __syncthreads();  // Other threads may still read the tiles.
    Load<kWidth, kOther>(keys, u, k);
    LoadAcross<kWidth, kOther>(values, u, v);
    __syncthreads();
    float score[kOther / 8][4];
    Dots<kWidth, kOther>(q, warp_row, k, score);
    float new_top[2] = {top[0], top[1]};
#pragma unroll
    for (int n = 0; n < kOther / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t row = at.first + warp_row + g + i / 2 * 8;
        const int64_t key = u + n * 8 + 2 * t + i % 2;
        score[n][i] = key <= row ? scale * score[n][i] : -HUGE_VALF;
        new_top[i / 2] =
            score[n][i] > new_top[i / 2] ? score[n][i] : new_top[i / 2];
      }
    }
    float keep[2], tile_total[2] = {0, 0};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // The first tile has key 0, which all queries see, so this is finite.
      new_top[half] = WarpMax<4>(new_top[half]);
      keep[half] = expf(top[half] - new_top[half]);
      top[half] = new_top[half];
    }
#pragma unroll
    for (int n = 0; n < kOther / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        score[n][i] = expf(score[n][i] - top[i / 2]);
        tile_total[i / 2] += score[n][i];
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      total[half] = total[half] * keep[half] + WarpSum<4>(tile_total[half]);
    }
#pragma unroll
    for (int c = 0; c < kWidth / 8; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[c][i] *= keep[i / 2];
    }
    AddWeighted<kWidth, kOther>(score, v, sum);
  }
#pragma unroll
  for (int c = 0; c < kWidth / 8; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[c][i] /= total[i / 2];
  }
  float* const sums = log_sum + (at.batch * s.head_count + at.head) * length;
  for (int half = 0; half < 2; ++half) {
    const int64_t row = at.first + warp_row + g + half * 8;
    if (t == 0 && row < length) sums[row] = top[half] + logf(total[half]);
  }
  const Head to = OutHead(s, out, at.batch, at.head);
  Store<kWidth>(sum, at.first + warp_row, length, to.width, to.stride,
                out + (to.data - out));
}

// p and its gradient for one score. Zero if the query does not see the key.
struct Gradient {
  float p, dscore;
};
__device__ inline Gradient ComputeGradient(float score, float dp, float scale,
                                      int64_t query, int64_t key,
                                      int64_t length, const float* log_sum,
                                      const float* dot) {
  if (query >= length || key > query) return {0, 0};
  const float p = expf(scale * score - log_sum[query]);
  return {p, p * (dp - dot[query]) * scale};
}

// dk and dv of 64 keys. Rows are keys, columns queries.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    KeysKernel(AttentionShape s, float scale, const float* qkv,
               const float* log_sum, const float* dout, const float* dot,
               float* dqkv) {
  ATL_DYNAMIC_SHARED(uint32_t, shared);
  const Tile<kWidth> k = {shared};
  const Tile<kWidth> v = {k.data + Tile<kWidth>::Words(kOwn)};
  const Tile<kWidth> q = {v.data + Tile<kWidth>::Words(kOwn)};
  const Tile<kWidth> d = {q.data + Tile<kWidth>::Words(kOther)};
  const Tile<kOther> q_across = {d.data + Tile<kWidth>::Words(kOther)};
  const Tile<kOther> d_across = {q_across.data + Tile<kOther>::Words(kWidth)};
  const int64_t length = s.sequence_length;
  const Place at = ToPlace(length, s.kv_head_count);
  const int64_t group = s.head_count / s.kv_head_count;
  const int64_t key_head = s.head_count + at.head;
  const Head keys = QkvHead(s, qkv, at.batch, key_head);
  const Head values = QkvHead(s, qkv, at.batch, key_head + s.kv_head_count);
  const int warp_row = threadIdx.x / kWarpSize * 16;
  const int g = threadIdx.x % kWarpSize / 4, t = threadIdx.x % 4;
  Load<kWidth, kOwn>(keys, at.first, k);
  Load<kWidth, kOwn>(values, at.first, v);
  float dk[kWidth / 8][4] = {}, dv[kWidth / 8][4] = {};
  for (int64_t h = at.head * group; h < (at.head + 1) * group; ++h) {
    const int64_t sums = (at.batch * s.head_count + h) * length;
    const Head queries = QkvHead(s, qkv, at.batch, h);
    const Head douts = OutHead(s, dout, at.batch, h);
    // Queries before the first key do not see it.
    for (int64_t r = at.first; r < length; r += kOther) {
      __syncthreads();  // Other threads may still read the tiles.
      Load<kWidth, kOther>(queries, r, q);
      Load<kWidth, kOther>(douts, r, d);
      LoadAcross<kWidth, kOther>(queries, r, q_across);
      LoadAcross<kWidth, kOther>(douts, r, d_across);
      __syncthreads();
      float p[kOther / 8][4], dscore[kOther / 8][4];
      Dots<kWidth, kOther>(k, warp_row, q, p);
      Dots<kWidth, kOther>(v, warp_row, d, dscore);
#pragma unroll
      for (int n = 0; n < kOther / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Gradient gradient = ComputeGradient(
              p[n][i], dscore[n][i], scale, r + n * 8 + 2 * t + i % 2,
              at.first + warp_row + g + i / 2 * 8, length, log_sum + sums,
              dot + sums);
          p[n][i] = gradient.p;
          dscore[n][i] = gradient.dscore;
        }
      }
      AddWeighted<kWidth, kOther>(p, d_across, dv);
      AddWeighted<kWidth, kOther>(dscore, q_across, dk);
    }
  }
  Store<kWidth>(dk, at.first + warp_row, length, keys.width, keys.stride,
                dqkv + (keys.data - qkv));
  Store<kWidth>(dv, at.first + warp_row, length, values.width, values.stride,
                dqkv + (values.data - qkv));
}

// dq of 64 queries. Rows are queries, columns keys.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    QueriesKernel(AttentionShape s, float scale, const float* qkv,
                  const float* log_sum, const float* dout, const float* dot,
                  float* dqkv) {
  ATL_DYNAMIC_SHARED(uint32_t, shared);
  const Tile<kWidth> q = {shared};
  const Tile<kWidth> d = {q.data + Tile<kWidth>::Words(kOwn)};
  const Tile<kWidth> k = {d.data + Tile<kWidth>::Words(kOwn)};
  const Tile<kWidth> v = {k.data + Tile<kWidth>::Words(kOther)};
  const Tile<kOther> k_across = {v.data + Tile<kWidth>::Words(kOther)};
  const int64_t length = s.sequence_length;
  const Place at = ToPlace(length, s.head_count);
  const int64_t kv = s.head_count + at.head / (s.head_count / s.kv_head_count);
  const Head queries = QkvHead(s, qkv, at.batch, at.head);
  const Head keys = QkvHead(s, qkv, at.batch, kv);
  const Head values = QkvHead(s, qkv, at.batch, kv + s.kv_head_count);
  const int64_t sums = (at.batch * s.head_count + at.head) * length;
  const int warp_row = threadIdx.x / kWarpSize * 16;
  const int g = threadIdx.x % kWarpSize / 4, t = threadIdx.x % 4;
  Load<kWidth, kOwn>(queries, at.first, q);
  Load<kWidth, kOwn>(OutHead(s, dout, at.batch, at.head), at.first, d);
  float dq[kWidth / 8][4] = {};
  const int64_t past = at.first + kOwn < length ? at.first + kOwn : length;
  for (int64_t u = 0; u < past; u += kOther) {
    __syncthreads();  // Other threads may still read the tiles.
    Load<kWidth, kOther>(keys, u, k);
    Load<kWidth, kOther>(values, u, v);
    LoadAcross<kWidth, kOther>(keys, u, k_across);
    __syncthreads();
    float score[kOther / 8][4], dscore[kOther / 8][4];
    Dots<kWidth, kOther>(q, warp_row, k, score);
    Dots<kWidth, kOther>(d, warp_row, v, dscore);
#pragma unroll
    for (int n = 0; n < kOther / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        dscore[n][i] = ComputeGradient(score[n][i], dscore[n][i], scale,
                                  at.first + warp_row + g + i / 2 * 8,
                                  u + n * 8 + 2 * t + i % 2, length,
                                  log_sum + sums, dot + sums)
                           .dscore;
      }
    }
    AddWeighted<kWidth, kOther>(dscore, k_across, dq);
  }
  Store<kWidth>(dq, at.first + warp_row, length, queries.width, queries.stride,
                dqkv + (queries.data - qkv));
}

unsigned Blocks(const AttentionShape& s, int64_t heads) {
  return static_cast<unsigned>(s.batch * heads *
                               ((s.sequence_length + kOwn - 1) / kOwn));
}

float Scale(const AttentionShape& s) {
  return 1.0f / sqrtf(static_cast<float>(s.head_dim));
}

template <int kWidth>
void Forward(cudaStream_t stream, const AttentionShape& s, const float* qkv,
             float* out, float* log_sum) {
  const size_t bytes = sizeof(uint32_t) * (Tile<kWidth>::Words(kOwn + kOther) +
                                           Tile<kOther>::Words(kWidth));
  ATL_ALLOW_SHARED((ForwardKernel<kWidth>), bytes);
  ATL_LAUNCH((ForwardKernel<kWidth>), Blocks(s, s.head_count), kThreads, bytes,
             stream, s, Scale(s), qkv, out, log_sum);
}

template <int kWidth>
void Backward(cudaStream_t stream, const AttentionShape& s, const float* qkv,
              const float* log_sum, const float* dout, const float* dot,
              float* dqkv) {
  const int rows = Tile<kWidth>::Words(2 * kOwn + 2 * kOther);
  const size_t keys_bytes =
      sizeof(uint32_t) * (rows + 2 * Tile<kOther>::Words(kWidth));
  const size_t queries_bytes =
      sizeof(uint32_t) * (rows + Tile<kOther>::Words(kWidth));
  ATL_ALLOW_SHARED((KeysKernel<kWidth>), keys_bytes);
  ATL_LAUNCH((KeysKernel<kWidth>), Blocks(s, s.kv_head_count), kThreads,
             keys_bytes, stream, s, Scale(s), qkv, log_sum, dout, dot, dqkv);
  ATL_ALLOW_SHARED((QueriesKernel<kWidth>), queries_bytes);
  ATL_LAUNCH((QueriesKernel<kWidth>), Blocks(s, s.head_count), kThreads,
             queries_bytes, stream, s, Scale(s), qkv, log_sum, dout, dot, dqkv);
}

}  // namespace

void AttentionBf16(cudaStream_t stream, const AttentionShape& shape,
                   const float* qkv, float* out, float* log_sum) {
  if (shape.rows() <= 0) return;
  if (shape.head_dim <= 64) {
    Forward<64>(stream, shape, qkv, out, log_sum);
  } else {
    Forward<128>(stream, shape, qkv, out, log_sum);
  }
}

void AttentionBackwardBf16(cudaStream_t stream, const AttentionShape& shape,
                           const float* qkv, const float* out,
                           const float* log_sum, const float* dout, float* dot,
                           float* dqkv) {
  if (shape.rows() <= 0) return;
  AttentionDots(stream, shape, out, dout, dot);
  if (shape.head_dim <= 64) {
    Backward<64>(stream, shape, qkv, log_sum, dout, dot, dqkv);
  } else {
    Backward<128>(stream, shape, qkv, log_sum, dout, dot, dqkv);
  }
}

}  // namespace atl::engine::cuda
