// Causal attention in f32 that never writes the scores: tiles of queries
// against tiles of keys, with a running softmax (FlashAttention-2, arXiv
// 2307.08691). The backward pass recomputes the probabilities from log_sum.
//
// 256 threads form a 16 x 16 grid: thread (y, x) has rows y, y + 16, ... of a
// tile and columns or channels x, x + 16, ... One block sums the gradients of
// its keys and values; a second pass sums those of queries. So scores are made
// twice more, but no two blocks add to one number.

#include <cstdint>

#include "worker/engine/ops/cuda/device.h"
#include "worker/engine/ops/cuda/kernels.h"
#include "worker/engine/ops/cuda/plan/launch_plan.h"

namespace atl::engine::cuda {
namespace {

constexpr int kSide = 16;
constexpr int kThreads = kSide * kSide;

// Rows [query_begin, query_begin + query_count) of each sequence of qkv against
// `key_count` rows of keys and values.
struct Problem {
  AttentionShape shape;
  int64_t query_begin, query_count, key_count;
  bool causal;  // Query i sees keys up to i; else all keys.
  bool adds;    // To the attention over other keys in out and log_sum.
  const float* qkv;
  // The first key head and value head of sequence 0, at their first key.
  // Strides are from sequence to sequence and from row to row.
  const float *keys, *values;
  int64_t kv_batch_stride, kv_stride;

  // A head's first query: in qkv (or its gradient), in out, in log_sum.
  __device__ int64_t QueryAt(int64_t batch, int64_t head) const {
    return (batch * shape.sequence_length + query_begin) * shape.qkv_size() +
           head * shape.head_dim;
  }
  __device__ int64_t OutAt(int64_t batch, int64_t head) const {
    return (batch * shape.sequence_length + query_begin) * shape.out_size() +
           head * shape.head_dim;
  }
  __device__ int64_t SumAt(int64_t batch, int64_t head) const {
    return (batch * shape.head_count + head) * shape.sequence_length +
           query_begin;
  }
  // A key head's first key, in `keys` or `values`.
  __device__ int64_t KeyAt(int64_t batch, int64_t head) const {
    return batch * kv_batch_stride + head * shape.head_dim;
  }
  __device__ int64_t KeyHead(int64_t head) const {
    return head / (shape.head_count / shape.kv_head_count);
  }
  // Returns how many keys `rows` queries from `first` on see at most.
  __device__ int64_t KeysBefore(int64_t first, int64_t rows) const {
    if (!causal) return key_count;
    return first + rows < key_count ? first + rows : key_count;
  }
};

// A block's work. `head` is a query head or a key head.
struct Place {
  int64_t batch, head, first;  // First row of its tile.
};

// Late tiles have more keys before them, so they start first.
__device__ inline Place ToPlace(int64_t length, int64_t heads, int tile) {
  const int64_t tiles = (length + tile - 1) / tile;
  const int64_t others = blockIdx.x / tiles;
  return {others / heads, others % heads,
          (tiles - 1 - blockIdx.x % tiles) * tile};
}

// Rows [first, first + kRows) of a head into `to` [kRows][kWidth + 1]. Zero
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
__device__ inline void AddWeighted(
    const float* weights, int row_step, int step, const float* values,
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

// Writes or adds a tile's rows, from `first` on, to a head.
template <int kWidth, int kRows>
__device__ inline void Store(const float (&from)[kRows / kSide][kWidth / kSide],
                             bool adds, int64_t stride, int64_t first,
                             int64_t length, int64_t head_dim, float* head) {
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
#pragma unroll
  for (int i = 0; i < kRows / kSide; ++i) {
    const int64_t row = first + y + kSide * i;
#pragma unroll
    for (int c = 0; c < kWidth / kSide; ++c) {
      const int channel = x + kSide * c;
      if (row < length && channel < head_dim) {
        float* const to = head + row * stride + channel;
        *to = adds ? *to + from[i][c] : from[i][c];
      }
    }
  }
}

template <int kWidth, int kRows, int kColumns>
__global__ void __launch_bounds__(kThreads)
    AttentionKernel(Problem a, float scale, float* out, float* log_sum) {
  ATL_DYNAMIC_SHARED(float, shared);
  float* const q = shared;
  float* const k = q + kRows * (kWidth + 1);
  float* const v = k + kColumns * (kWidth + 1);
  float* const p = v + kColumns * (kWidth + 1);
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
  const AttentionShape& s = a.shape;
  const int64_t length = a.query_count;
  const Place at = ToPlace(length, s.head_count, kRows);
  const int64_t key_at = a.KeyAt(at.batch, a.KeyHead(at.head));
  float* const head_out = out + a.OutAt(at.batch, at.head);
  float* const head_sum = log_sum + a.SumAt(at.batch, at.head);
  Load<kWidth, kRows>(a.qkv + a.QueryAt(at.batch, at.head), s.qkv_size(),
                      at.first, length, s.head_dim, q);
  constexpr int kI = kRows / kSide, kJ = kColumns / kSide;
  float top[kI], total[kI], sum[kI][kWidth / kSide];
#pragma unroll
  for (int i = 0; i < kI; ++i) {
    // The attention over other keys counts as one key with this score.
    const int64_t row = at.first + y + kSide * i;
    const bool has_more = a.adds && row < length;
    top[i] = has_more ? head_sum[row] : -HUGE_VALF;
    total[i] = has_more ? 1 : 0;
#pragma unroll
    for (int c = 0; c < kWidth / kSide; ++c) {
      const int channel = x + kSide * c;
      sum[i][c] = has_more && channel < s.head_dim
                      ? head_out[row * s.out_size() + channel]
                      : 0.0f;
    }
  }
  const int64_t past = a.KeysBefore(at.first, kRows);
  for (int64_t u = 0; u < past; u += kColumns) {
    __syncthreads();  // Other threads may still read k, v and p.
    Load<kWidth, kColumns>(a.keys + key_at, a.kv_stride, u, a.key_count,
                           s.head_dim, k);
    Load<kWidth, kColumns>(a.values + key_at, a.kv_stride, u, a.key_count,
                           s.head_dim, v);
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
        const bool seen = key < a.key_count && (!a.causal || key <= row);
        score[i][j] = seen ? scale * score[i][j] : -HUGE_VALF;
        tile_top = score[i][j] > tile_top ? score[i][j] : tile_top;
      }
      tile_top = WarpMax<kSide>(tile_top);
      // The first tile has key 0, which all queries see, so this is finite.
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
    __syncwarp();  // Half a warp shares these rows of p.
    AddWeighted<kWidth, kRows, kColumns>(p, kColumns + 1, 1, v, sum);
  }
#pragma unroll
  for (int i = 0; i < kI; ++i) {
    const int64_t row = at.first + y + kSide * i;
    if (x == 0 && row < length) head_sum[row] = top[i] + logf(total[i]);
#pragma unroll
    for (int c = 0; c < kWidth / kSide; ++c) sum[i][c] /= total[i];
  }
  Store<kWidth, kRows>(sum, false, s.out_size(), at.first, length, s.head_dim,
                       head_out);
}

// dot[b, h, t] = out . dout of that row and head; one warp each.
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

// Shared memory of both backward kernels.
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

// p and dscore of queries from `first` and keys from `u` on. `log_sum` and
// `dot` start at the head's first query.
template <int kWidth, int kRows, int kColumns>
__device__ inline void MakeGradients(
    const Problem& a, const BackwardTiles<kWidth, kRows, kColumns>& t,
    float scale, int64_t first, int64_t u, const float* log_sum,
    const float* dot) {
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
      const bool seen = key < a.key_count && (!a.causal || key <= row);
      if (row < a.query_count && seen) {
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
    AttentionKeysKernel(Problem a, float scale, const float* log_sum,
                        const float* dout, const float* dot, float* dkeys,
                        float* dvalues) {
  ATL_DYNAMIC_SHARED(float, shared);
  const BackwardTiles<kWidth, kRows, kColumns> t(shared);
  const AttentionShape& s = a.shape;
  const Place at = ToPlace(a.key_count, s.kv_head_count, kColumns);
  const int64_t group = s.head_count / s.kv_head_count;
  const int64_t key_at = a.KeyAt(at.batch, at.head);
  Load<kWidth, kColumns>(a.keys + key_at, a.kv_stride, at.first, a.key_count,
                         s.head_dim, t.k);
  Load<kWidth, kColumns>(a.values + key_at, a.kv_stride, at.first, a.key_count,
                         s.head_dim, t.v);
  float dk[kColumns / kSide][kWidth / kSide];
  float dv[kColumns / kSide][kWidth / kSide];
#pragma unroll
  for (int i = 0; i < kColumns / kSide; ++i) {
#pragma unroll
    for (int c = 0; c < kWidth / kSide; ++c) dk[i][c] = dv[i][c] = 0;
  }
  for (int64_t h = at.head * group; h < (at.head + 1) * group; ++h) {
    const int64_t sums = a.SumAt(at.batch, h);
    // Queries before the first key do not see it.
    const int64_t begin = a.causal ? at.first / kRows * kRows : 0;
    for (int64_t r = begin; r < a.query_count; r += kRows) {
      __syncthreads();  // Other threads may still read the tiles.
      Load<kWidth, kRows>(a.qkv + a.QueryAt(at.batch, h), s.qkv_size(), r,
                          a.query_count, s.head_dim, t.q);
      Load<kWidth, kRows>(dout + a.OutAt(at.batch, h), s.out_size(), r,
                          a.query_count, s.head_dim, t.dout);
      __syncthreads();
      MakeGradients(a, t, scale, r, at.first, log_sum + sums, dot + sums);
      __syncthreads();
      AddWeighted<kWidth, kColumns, kRows>(t.p, 1, kColumns + 1, t.dout, dv);
      AddWeighted<kWidth, kColumns, kRows>(t.dscore, 1, kColumns + 1, t.q, dk);
    }
  }
  Store<kWidth, kColumns>(dk, a.adds, a.kv_stride, at.first, a.key_count,
                          s.head_dim, dkeys + key_at);
  Store<kWidth, kColumns>(dv, a.adds, a.kv_stride, at.first, a.key_count,
                          s.head_dim, dvalues + key_at);
}

// dq of a tile of queries.
template <int kWidth, int kRows, int kColumns>
__global__ void __launch_bounds__(kThreads)
    AttentionQueriesKernel(Problem a, float scale, const float* log_sum,
                           const float* dout, const float* dot, float* dqkv) {
  ATL_DYNAMIC_SHARED(float, shared);
  const BackwardTiles<kWidth, kRows, kColumns> t(shared);
  const AttentionShape& s = a.shape;
  const int64_t length = a.query_count;
  const Place at = ToPlace(length, s.head_count, kRows);
  const int64_t key_at = a.KeyAt(at.batch, a.KeyHead(at.head));
  const int64_t sums = a.SumAt(at.batch, at.head);
  const int64_t query_at = a.QueryAt(at.batch, at.head);
  Load<kWidth, kRows>(a.qkv + query_at, s.qkv_size(), at.first, length,
                      s.head_dim, t.q);
  Load<kWidth, kRows>(dout + a.OutAt(at.batch, at.head), s.out_size(), at.first,
                      length, s.head_dim, t.dout);
  float dq[kRows / kSide][kWidth / kSide];
#pragma unroll
  for (int i = 0; i < kRows / kSide; ++i) {
#pragma unroll
    for (int c = 0; c < kWidth / kSide; ++c) dq[i][c] = 0;
  }
  const int64_t past = a.KeysBefore(at.first, kRows);
  for (int64_t u = 0; u < past; u += kColumns) {
    __syncthreads();  // Other threads may still read the tiles.
    Load<kWidth, kColumns>(a.keys + key_at, a.kv_stride, u, a.key_count,
                           s.head_dim, t.k);
    Load<kWidth, kColumns>(a.values + key_at, a.kv_stride, u, a.key_count,
                           s.head_dim, t.v);
    __syncthreads();
    MakeGradients(a, t, scale, at.first, u, log_sum + sums, dot + sums);
    __syncthreads();
    AddWeighted<kWidth, kRows, kColumns>(t.dscore, kColumns + 1, 1, t.k, dq);
  }
  Store<kWidth, kRows>(dq, a.adds, s.qkv_size(), at.first, length, s.head_dim,
                       dqkv + query_at);
}

unsigned Blocks(int64_t batch, int64_t heads, int64_t rows, int tile) {
  return static_cast<unsigned>(batch * heads * ((rows + tile - 1) / tile));
}

float Scale(const Problem& a) {
  return 1.0f / sqrtf(static_cast<float>(a.shape.head_dim));
}

template <int kWidth, int kRows, int kColumns>
void Forward(cudaStream_t stream, const Problem& a, float* out,
             float* log_sum) {
  const size_t bytes = AttentionSharedBytes({kWidth, kRows, kColumns});
  const unsigned blocks =
      Blocks(a.shape.batch, a.shape.head_count, a.query_count, kRows);
  ATL_ALLOW_SHARED((AttentionKernel<kWidth, kRows, kColumns>), bytes);
  ATL_LAUNCH((AttentionKernel<kWidth, kRows, kColumns>), blocks, kThreads,
             bytes, stream, a, Scale(a), out, log_sum);
}

struct Gradients {
  float *dqkv, *dkeys, *dvalues;
};

template <int kWidth, int kRows, int kColumns>
void Backward(cudaStream_t stream, const Problem& a, const float* log_sum,
              const float* dout, const float* dot, const Gradients& to) {
  const size_t bytes = AttentionBackwardSharedBytes({kWidth, kRows, kColumns});
  const AttentionShape& s = a.shape;
  ATL_ALLOW_SHARED((AttentionKeysKernel<kWidth, kRows, kColumns>), bytes);
  ATL_LAUNCH((AttentionKeysKernel<kWidth, kRows, kColumns>),
             Blocks(s.batch, s.kv_head_count, a.key_count, kColumns), kThreads,
             bytes, stream, a, Scale(a), log_sum, dout, dot, to.dkeys,
             to.dvalues);
  ATL_ALLOW_SHARED((AttentionQueriesKernel<kWidth, kRows, kColumns>), bytes);
  ATL_LAUNCH((AttentionQueriesKernel<kWidth, kRows, kColumns>),
             Blocks(s.batch, s.head_count, a.query_count, kRows), kThreads,
             bytes, stream, a, Scale(a), log_sum, dout, dot, to.dqkv);
}

void Solve(cudaStream_t stream, const Problem& a, float* out, float* log_sum) {
  if (a.shape.batch <= 0 || a.query_count <= 0 || a.key_count <= 0) return;
  switch (PlanAttention(a.shape.head_dim).width) {
    case 32:
      return Forward<32, 64, 64>(stream, a, out, log_sum);
    case 64:
      return Forward<64, 64, 64>(stream, a, out, log_sum);
    case 128:
      return Forward<128, 64, 32>(stream, a, out, log_sum);
    case 256:
      return Forward<256, 32, 16>(stream, a, out, log_sum);
  }
}

void SolveBackward(cudaStream_t stream, const Problem& a, const float* out,
                   const float* log_sum, const float* dout, float* dot,
                   const Gradients& to) {
  const AttentionShape& s = a.shape;
  if (s.batch <= 0 || a.query_count <= 0 || a.key_count <= 0) return;
  AttentionDots(stream, s, out, dout, dot);
  switch (PlanAttentionBackward(s.head_dim).width) {
    case 32:
      return Backward<32, 64, 64>(stream, a, log_sum, dout, dot, to);
    case 64:
      return Backward<64, 64, 64>(stream, a, log_sum, dout, dot, to);
    case 128:
      return Backward<128, 32, 32>(stream, a, log_sum, dout, dot, to);
    case 256:
      return Backward<256, 16, 16>(stream, a, log_sum, dout, dot, to);
  }
}

Problem CausalProblem(const AttentionShape& s, const float* qkv) {
  const float* const keys = qkv + s.head_count * s.head_dim;
  return {.shape = s,
          .query_begin = 0,
          .query_count = s.sequence_length,
          .key_count = s.sequence_length,
          .causal = true,
          .adds = false,
          .qkv = qkv,
          .keys = keys,
          .values = keys + s.kv_head_count * s.head_dim,
          .kv_batch_stride = s.sequence_length * s.qkv_size(),
          .kv_stride = s.qkv_size()};
}

Problem BlockProblem(const AttentionBlock& block, const float* qkv,
                     const float* keys_values) {
  const AttentionShape& s = block.shape;
  const float* const keys = keys_values + block.key_begin * block.kv_size();
  return {.shape = s,
          .query_begin = block.query_begin,
          .query_count = block.query_count,
          .key_count = block.key_count,
          .causal = false,
          .adds = true,
          .qkv = qkv,
          .keys = keys,
          .values = keys + s.kv_head_count * s.head_dim,
          .kv_batch_stride = s.sequence_length * block.kv_size(),
          .kv_stride = block.kv_size()};
}

}  // namespace

void AttentionDots(cudaStream_t stream, const AttentionShape& shape,
                   const float* out, const float* dout, float* dot) {
  ATL_LAUNCH((DotKernel),
             ElementBlocks(shape.rows() * shape.head_count * kWarpSize),
             kBlockThreads, 0, stream, shape, out, dout, dot);
}

void Attention(cudaStream_t stream, const AttentionShape& shape,
               const float* qkv, float* out, float* log_sum) {
  Solve(stream, CausalProblem(shape, qkv), out, log_sum);
}

void AttentionBackward(cudaStream_t stream, const AttentionShape& shape,
                       const float* qkv, const float* out, const float* log_sum,
                       const float* dout, float* dot, float* dqkv) {
  float* const dkeys = dqkv + shape.head_count * shape.head_dim;
  SolveBackward(stream, CausalProblem(shape, qkv), out, log_sum, dout, dot,
                {dqkv, dkeys, dkeys + shape.kv_head_count * shape.head_dim});
}

void AttendBlock(cudaStream_t stream, const AttentionBlock& block,
                 const float* qkv, const float* keys_values, float* out,
                 float* log_sum) {
  Solve(stream, BlockProblem(block, qkv, keys_values), out, log_sum);
}

void AttendBlockBackward(cudaStream_t stream, const AttentionBlock& block,
                         const float* qkv, const float* keys_values,
                         const float* out, const float* log_sum,
                         const float* dout, float* dot, float* dqkv,
                         float* dkeys_values) {
  float* const dkeys = dkeys_values + block.key_begin * block.kv_size();
  SolveBackward(
      stream, BlockProblem(block, qkv, keys_values), out, log_sum, dout, dot,
      {dqkv, dkeys, dkeys + block.shape.kv_head_count * block.shape.head_dim});
}

}  // namespace atl::engine::cuda
