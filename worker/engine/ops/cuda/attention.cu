// Causal attention in f32 that never writes the score matrix: tiles of queries
// against tiles of keys, with a running softmax (FlashAttention-2, arXiv
// 2307.08691); the backward pass makes the probabilities anew from log_sum.
//
// 256 threads as 16 x 16: thread (y, x) has rows y, y + 16, ... of a tile and
// columns or channels x, x + 16, ... The gradients of keys and values are
// summed by the block that owns them, those of queries in a pass of their own:
// scores are made twice more, and no two blocks add to one number.

#include <cstdint>

#include "worker/engine/ops/cuda/device.h"
#include "worker/engine/ops/cuda/kernels.h"
#include "worker/engine/ops/cuda/launch_plan.h"

namespace atl::engine::cuda {
namespace {

constexpr int kSide = 16;
constexpr int kThreads = kSide * kSide;

// The part of an attention that one block has: `head` among the query heads, or
// among the key heads.
struct Place {
  int64_t batch, head, first;  // First row of its tile.
};

// Late tiles have more keys before them: they begin first.
__device__ inline Place PlaceOf(int64_t length, int64_t heads, int tile) {
  const int64_t tiles = (length + tile - 1) / tile;
  const int64_t others = blockIdx.x / tiles;
  return {others / heads, others % heads,
          (tiles - 1 - blockIdx.x % tiles) * tile};
}

// Rows [first, first + kRows) of a head into `to` [kRows][kWidth + 1]; zero
// past the head's last channel and the sequence's last row.
template <int kWidth, int kRows>
__device__ inline void Load(const float* head, int64_t stride, int64_t first,
                            int64_t length, int64_t head_dim, float* to) {
  for (int i = threadIdx.x; i < kRows * kWidth; i += kThreads) {
    const int r = i / kWidth, c = i % kWidth;
    const bool inside = first + r < length && c < head_dim;
    to[r * (kWidth + 1) + c] = inside ? head[(first + r) * stride + c] : 0.0f;
  }
}

// out[i][j] = dot product of rows (y + 16 i) of a and (x + 16 j) of b.
template <int kWidth, int kRows, int kColumns>
__device__ inline void Dots(const float* a, const float* b,
                            float (&out)[kRows / kSide][kColumns / kSide]) {
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
  constexpr int kStride = kWidth + 1;
#pragma unroll
  for (int i = 0; i < kRows / kSide; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns / kSide; ++j) out[i][j] = 0;
  }
#pragma unroll 4
  for (int c = 0; c < kWidth; ++c) {
    float left[kRows / kSide], right[kColumns / kSide];
#pragma unroll
    for (int i = 0; i < kRows / kSide; ++i) {
      left[i] = a[(y + kSide * i) * kStride + c];
    }
#pragma unroll
    for (int j = 0; j < kColumns / kSide; ++j) {
      right[j] = b[(x + kSide * j) * kStride + c];
    }
#pragma unroll
    for (int i = 0; i < kRows / kSide; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns / kSide; ++j) {
        out[i][j] = fmaf(left[i], right[j], out[i][j]);
      }
    }
  }
}

// sum[i][c] += over n < kInner of weights(y + 16 i, n) values[n][x + 16 c],
// where weights(r, n) is weights[r * row_step + n * step].
template <int kWidth, int kRows, int kInner>
__device__ inline void AddWeighted(const float* weights, int row_step, int step,
                                   const float* values,
                                   float (&sum)[kRows / kSide][kWidth / kSide]) {
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
#pragma unroll 4
  for (int n = 0; n < kInner; ++n) {
    float left[kRows / kSide];
#pragma unroll
    for (int i = 0; i < kRows / kSide; ++i) {
      left[i] = weights[(y + kSide * i) * row_step + n * step];
    }
#pragma unroll
    for (int c = 0; c < kWidth / kSide; ++c) {
      const float right = values[n * (kWidth + 1) + x + kSide * c];
#pragma unroll
      for (int i = 0; i < kRows / kSide; ++i) {
        sum[i][c] = fmaf(left[i], right, sum[i][c]);
      }
    }
  }
}

// Rows of the tile at `first` to a head in memory.
template <int kWidth, int kRows>
__device__ inline void Store(const float (&from)[kRows / kSide][kWidth / kSide],
                             int64_t stride, int64_t first, int64_t length,
                             int64_t head_dim, float* head) {
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
#pragma unroll
  for (int i = 0; i < kRows / kSide; ++i) {
    const int64_t row = first + y + kSide * i;
#pragma unroll
    for (int c = 0; c < kWidth / kSide; ++c) {
      const int channel = x + kSide * c;
      if (row < length && channel < head_dim) {
        head[row * stride + channel] = from[i][c];
      }
    }
  }
}

// Where a head of a sequence begins in qkv (of H + 2 G heads a row), or in out.
__device__ inline int64_t QkvAt(const AttentionShape& s, int64_t batch,
                                int64_t head) {
  return batch * s.sequence_length * s.qkv_size() + head * s.head_dim;
}
__device__ inline int64_t OutAt(const AttentionShape& s, int64_t batch,
                                int64_t head) {
  return batch * s.sequence_length * s.out_size() + head * s.head_dim;
}

template <int kWidth, int kRows, int kColumns>
__global__ void __launch_bounds__(kThreads)
    AttentionKernel(AttentionShape s, float scale, const float* qkv, float* out,
                    float* log_sum) {
  ATL_DYNAMIC_SHARED(float, shared);
  float* const q = shared;
  float* const k = q + kRows * (kWidth + 1);
  float* const v = k + kColumns * (kWidth + 1);
  float* const p = v + kColumns * (kWidth + 1);
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
  const int64_t length = s.sequence_length, stride = s.qkv_size();
  const Place at = PlaceOf(length, s.head_count, kRows);
  const int64_t kv = s.head_count + at.head / (s.head_count / s.kv_head_count);
  const float* const keys = qkv + QkvAt(s, at.batch, kv);
  const float* const values = keys + s.kv_head_count * s.head_dim;
  Load<kWidth, kRows>(qkv + QkvAt(s, at.batch, at.head), stride, at.first,
                      length, s.head_dim, q);
  constexpr int kI = kRows / kSide, kJ = kColumns / kSide;
  float top[kI], total[kI], sum[kI][kWidth / kSide];
#pragma unroll
  for (int i = 0; i < kI; ++i) {
    top[i] = -HUGE_VALF;
    total[i] = 0;
#pragma unroll
    for (int c = 0; c < kWidth / kSide; ++c) sum[i][c] = 0;
  }
  const int64_t past = at.first + kRows < length ? at.first + kRows : length;
  for (int64_t u = 0; u < past; u += kColumns) {
    __syncthreads();  // k, v and p were read.
    Load<kWidth, kColumns>(keys, stride, u, length, s.head_dim, k);
    Load<kWidth, kColumns>(values, stride, u, length, s.head_dim, v);
    __syncthreads();
    float score[kI][kJ];
    Dots<kWidth, kRows, kColumns>(q, k, score);
#pragma unroll
    for (int i = 0; i < kI; ++i) {
      const int64_t row = at.first + y + kSide * i;
      float tile_top = -HUGE_VALF;
#pragma unroll
      for (int j = 0; j < kJ; ++j) {
        const int64_t key = u + x + kSide * j;
        score[i][j] = key <= row ? scale * score[i][j] : -HUGE_VALF;
        tile_top = score[i][j] > tile_top ? score[i][j] : tile_top;
      }
      tile_top = WarpMax<kSide>(tile_top);
      // Key 0 is in the first tile and seen by all, so this is finite.
      const float new_top = tile_top > top[i] ? tile_top : top[i];
      const float keep = expf(top[i] - new_top);
      float tile_total = 0;
#pragma unroll
      for (int j = 0; j < kJ; ++j) {
        const float value = expf(score[i][j] - new_top);
        tile_total += value;
        p[(y + kSide * i) * (kColumns + 1) + x + kSide * j] = value;
      }
      top[i] = new_top;
      total[i] = total[i] * keep + WarpSum<kSide>(tile_total);
#pragma unroll
      for (int c = 0; c < kWidth / kSide; ++c) sum[i][c] *= keep;
    }
    __syncwarp();  // Rows of p are of the same half of a warp.
    AddWeighted<kWidth, kRows, kColumns>(p, kColumns + 1, 1, v, sum);
  }
#pragma unroll
  for (int i = 0; i < kI; ++i) {
    const int64_t row = at.first + y + kSide * i;
    if (x == 0 && row < length) {
      log_sum[(at.batch * s.head_count + at.head) * length + row] =
          top[i] + logf(total[i]);
    }
#pragma unroll
    for (int c = 0; c < kWidth / kSide; ++c) sum[i][c] /= total[i];
  }
  Store<kWidth, kRows>(sum, s.out_size(), at.first, length, s.head_dim,
                       out + OutAt(s, at.batch, at.head));
}

// dot[b, h, t] = out . dout of that row and head; a warp each.
__global__ void DotKernel(AttentionShape s, const float* out, const float* dout,
                          float* dot) {
  const int64_t count = s.rows() * s.head_count;
  const int64_t warps = GlobalThreads() / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  for (int64_t i = GlobalThread() / kWarpSize; i < count; i += warps) {
    const int64_t row = i / s.head_count, head = i % s.head_count;
    const int64_t at = row * s.out_size() + head * s.head_dim;
    float sum = 0;
    for (int64_t c = lane; c < s.head_dim; c += kWarpSize) {
      sum += out[at + c] * dout[at + c];
    }
    sum = WarpSum(sum);
    const int64_t batch = row / s.sequence_length;
    if (lane == 0) {
      dot[(batch * s.head_count + head) * s.sequence_length +
          row % s.sequence_length] = sum;
    }
  }
}

// What both backward kernels have in shared memory.
template <int kWidth, int kRows, int kColumns>
struct BackwardTiles {
  float *q, *dout, *k, *v, *p, *dscore;
  __device__ explicit BackwardTiles(float* shared)
      : q(shared),
        dout(q + kRows * (kWidth + 1)),
        k(dout + kRows * (kWidth + 1)),
        v(k + kColumns * (kWidth + 1)),
        p(v + kColumns * (kWidth + 1)),
        dscore(p + kRows * (kColumns + 1)) {}
};

// p and dscore of queries from `first` and keys from `u`. `log_sum` and `dot`
// are of the head.
template <int kWidth, int kRows, int kColumns>
__device__ inline void MakeGradients(
    const BackwardTiles<kWidth, kRows, kColumns>& t, float scale, int64_t first,
    int64_t u, int64_t length, const float* log_sum, const float* dot) {
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
  float score[kRows / kSide][kColumns / kSide];
  float dp[kRows / kSide][kColumns / kSide];
  Dots<kWidth, kRows, kColumns>(t.q, t.k, score);
  Dots<kWidth, kRows, kColumns>(t.dout, t.v, dp);
#pragma unroll
  for (int i = 0; i < kRows / kSide; ++i) {
    const int64_t row = first + y + kSide * i;
#pragma unroll
    for (int j = 0; j < kColumns / kSide; ++j) {
      const int64_t key = u + x + kSide * j;
      const int at = (y + kSide * i) * (kColumns + 1) + x + kSide * j;
      float p = 0, dscore = 0;
      if (row < length && key <= row) {
        p = expf(scale * score[i][j] - log_sum[row]);
        dscore = p * (dp[i][j] - dot[row]) * scale;
      }
      t.p[at] = p;
      t.dscore[at] = dscore;
    }
  }
}

// dk and dv of a tile of keys.
template <int kWidth, int kRows, int kColumns>
__global__ void __launch_bounds__(kThreads)
    AttentionKeysKernel(AttentionShape s, float scale, const float* qkv,
                        const float* log_sum, const float* dout,
                        const float* dot, float* dqkv) {
  ATL_DYNAMIC_SHARED(float, shared);
  const BackwardTiles<kWidth, kRows, kColumns> t(shared);
  const int64_t length = s.sequence_length, stride = s.qkv_size();
  const Place at = PlaceOf(length, s.kv_head_count, kColumns);
  const int64_t group = s.head_count / s.kv_head_count;
  const int64_t key_at = QkvAt(s, at.batch, s.head_count + at.head);
  const int64_t value_at = key_at + s.kv_head_count * s.head_dim;
  Load<kWidth, kColumns>(qkv + key_at, stride, at.first, length, s.head_dim,
                         t.k);
  Load<kWidth, kColumns>(qkv + value_at, stride, at.first, length, s.head_dim,
                         t.v);
  float dk[kColumns / kSide][kWidth / kSide];
  float dv[kColumns / kSide][kWidth / kSide];
#pragma unroll
  for (int i = 0; i < kColumns / kSide; ++i) {
#pragma unroll
    for (int c = 0; c < kWidth / kSide; ++c) dk[i][c] = dv[i][c] = 0;
  }
  for (int64_t h = at.head * group; h < (at.head + 1) * group; ++h) {
    const int64_t sums = (at.batch * s.head_count + h) * length;
    // Queries before the first key do not see it.
    for (int64_t r = at.first / kRows * kRows; r < length; r += kRows) {
      __syncthreads();  // The tiles were read.
      Load<kWidth, kRows>(qkv + QkvAt(s, at.batch, h), stride, r, length,
                          s.head_dim, t.q);
      Load<kWidth, kRows>(dout + OutAt(s, at.batch, h), s.out_size(), r, length,
                          s.head_dim, t.dout);
      __syncthreads();
      MakeGradients(t, scale, r, at.first, length, log_sum + sums, dot + sums);
      __syncthreads();
      AddWeighted<kWidth, kColumns, kRows>(t.p, 1, kColumns + 1, t.dout, dv);
      AddWeighted<kWidth, kColumns, kRows>(t.dscore, 1, kColumns + 1, t.q, dk);
    }
  }
  Store<kWidth, kColumns>(dk, stride, at.first, length, s.head_dim,
                          dqkv + key_at);
  Store<kWidth, kColumns>(dv, stride, at.first, length, s.head_dim,
                          dqkv + value_at);
}

// dq of a tile of queries.
template <int kWidth, int kRows, int kColumns>
__global__ void __launch_bounds__(kThreads)
    AttentionQueriesKernel(AttentionShape s, float scale, const float* qkv,
                           const float* log_sum, const float* dout,
                           const float* dot, float* dqkv) {
  ATL_DYNAMIC_SHARED(float, shared);
  const BackwardTiles<kWidth, kRows, kColumns> t(shared);
  const int64_t length = s.sequence_length, stride = s.qkv_size();
  const Place at = PlaceOf(length, s.head_count, kRows);
  const int64_t kv = s.head_count + at.head / (s.head_count / s.kv_head_count);
  const float* const keys = qkv + QkvAt(s, at.batch, kv);
  const float* const values = keys + s.kv_head_count * s.head_dim;
  const int64_t sums = (at.batch * s.head_count + at.head) * length;
  Load<kWidth, kRows>(qkv + QkvAt(s, at.batch, at.head), stride, at.first,
                      length, s.head_dim, t.q);
  Load<kWidth, kRows>(dout + OutAt(s, at.batch, at.head), s.out_size(),
                      at.first, length, s.head_dim, t.dout);
  float dq[kRows / kSide][kWidth / kSide];
#pragma unroll
  for (int i = 0; i < kRows / kSide; ++i) {
#pragma unroll
    for (int c = 0; c < kWidth / kSide; ++c) dq[i][c] = 0;
  }
  const int64_t past = at.first + kRows < length ? at.first + kRows : length;
  for (int64_t u = 0; u < past; u += kColumns) {
    __syncthreads();  // The tiles were read.
    Load<kWidth, kColumns>(keys, stride, u, length, s.head_dim, t.k);
    Load<kWidth, kColumns>(values, stride, u, length, s.head_dim, t.v);
    __syncthreads();
    MakeGradients(t, scale, at.first, u, length, log_sum + sums, dot + sums);
    __syncthreads();
    AddWeighted<kWidth, kRows, kColumns>(t.dscore, kColumns + 1, 1, t.k, dq);
  }
  Store<kWidth, kRows>(dq, stride, at.first, length, s.head_dim,
                       dqkv + QkvAt(s, at.batch, at.head));
}

unsigned Blocks(const AttentionShape& s, int64_t heads, int tile) {
  const int64_t tiles = (s.sequence_length + tile - 1) / tile;
  return static_cast<unsigned>(s.batch * heads * tiles);
}

float Scale(const AttentionShape& s) {
  return 1.0f / sqrtf(static_cast<float>(s.head_dim));
}

template <int kWidth, int kRows, int kColumns>
void Forward(cudaStream_t stream, const AttentionShape& s, const float* qkv,
             float* out, float* log_sum) {
  const size_t bytes = AttentionSharedBytes({kWidth, kRows, kColumns});
  ATL_ALLOW_SHARED((AttentionKernel<kWidth, kRows, kColumns>), bytes);
  ATL_LAUNCH((AttentionKernel<kWidth, kRows, kColumns>),
             Blocks(s, s.head_count, kRows), kThreads, bytes, stream, s,
             Scale(s), qkv, out, log_sum);
}

template <int kWidth, int kRows, int kColumns>
void Backward(cudaStream_t stream, const AttentionShape& s, const float* qkv,
              const float* log_sum, const float* dout, const float* dot,
              float* dqkv) {
  const size_t bytes = AttentionBackwardSharedBytes({kWidth, kRows, kColumns});
  ATL_ALLOW_SHARED((AttentionKeysKernel<kWidth, kRows, kColumns>), bytes);
  ATL_LAUNCH((AttentionKeysKernel<kWidth, kRows, kColumns>),
             Blocks(s, s.kv_head_count, kColumns), kThreads, bytes, stream, s,
             Scale(s), qkv, log_sum, dout, dot, dqkv);
  ATL_ALLOW_SHARED((AttentionQueriesKernel<kWidth, kRows, kColumns>), bytes);
  ATL_LAUNCH((AttentionQueriesKernel<kWidth, kRows, kColumns>),
             Blocks(s, s.head_count, kRows), kThreads, bytes, stream, s,
             Scale(s), qkv, log_sum, dout, dot, dqkv);
}

}  // namespace

void Attention(cudaStream_t stream, const AttentionShape& shape,
               const float* qkv, float* out, float* log_sum) {
  if (shape.rows() <= 0) return;
  switch (PlanAttention(shape.head_dim).width) {
    case 32:
      return Forward<32, 64, 64>(stream, shape, qkv, out, log_sum);
    case 64:
      return Forward<64, 64, 64>(stream, shape, qkv, out, log_sum);
    case 128:
      return Forward<128, 64, 32>(stream, shape, qkv, out, log_sum);
    case 256:
      return Forward<256, 32, 16>(stream, shape, qkv, out, log_sum);
  }
}

void AttentionBackward(cudaStream_t stream, const AttentionShape& shape,
                       const float* qkv, const float* out, const float* log_sum,
                       const float* dout, float* dot, float* dqkv) {
  if (shape.rows() <= 0) return;
  ATL_LAUNCH((DotKernel),
             ElementBlocks(shape.rows() * shape.head_count * kWarpSize),
             kBlockThreads, 0, stream, shape, out, dout, dot);
  switch (PlanAttentionBackward(shape.head_dim).width) {
    case 32:
      return Backward<32, 64, 64>(stream, shape, qkv, log_sum, dout, dot, dqkv);
    case 64:
      return Backward<64, 64, 64>(stream, shape, qkv, log_sum, dout, dot, dqkv);
    case 128:
      return Backward<128, 32, 32>(stream, shape, qkv, log_sum, dout, dot,
                                   dqkv);
    case 256:
      return Backward<256, 16, 16>(stream, shape, qkv, log_sum, dout, dot,
                                   dqkv);
  }
}

}  // namespace atl::engine::cuda
