// The kernels as host code calls them. A call queues its work on `stream` and
// returns; cudaGetLastError has an error of the launch.
//
// All pointers are device pointers. ops.h defines each kernel under the same
// name; comments state differences. Counts may be zero. No two blocks add to
// one float, so same inputs give the same bits.

#pragma once

#include <cstdint>

#include "worker/engine/ops/cuda/runtime.h"
#include "worker/engine/ops/shapes.h"

namespace atl::engine::cuda {

void AddRows(cudaStream_t stream, int64_t rows, int64_t channels,
             const float* x, const float* delta, const float* bias, float* out);
void AddBias(cudaStream_t stream, int64_t rows, int64_t channels,
             const float* bias, float* y);
void AddPositions(cudaStream_t stream, int64_t rows, int64_t sequence_length,
                  int64_t channels, const float* table, float* x);
void PositionsBackward(cudaStream_t stream, int64_t rows,
                       int64_t sequence_length, int64_t channels,
                       const float* dx, float* dtable);
void Rope(cudaStream_t stream, const AttentionShape& shape, const float* table,
          bool inverse, float* qkv);
void SwiGlu(cudaStream_t stream, int64_t rows, int64_t inner,
            const float* gate_up, float* y);
void SwiGluBackward(cudaStream_t stream, int64_t rows, int64_t inner,
                    const float* gate_up, const float* dy, float* dgate_up);
void Gelu(cudaStream_t stream, int64_t n, const float* x, float* y);
void GeluBackward(cudaStream_t stream, int64_t n, const float* x,
                  const float* dy, float* dx);
void Axpy(cudaStream_t stream, int64_t n, float alpha, const float* x,
          float* y);
void Sgd(cudaStream_t stream, int64_t n, float learning_rate,
         float gradient_scale, const float* g, float* p);
void AdamW(cudaStream_t stream, int64_t n, const AdamWStep<float>& step,
           const float* g, float* p, float* m, float* v);
void SgdBy(cudaStream_t stream, int64_t n, const AdamWStep<float>* step,
           const float* scale, const float* g, float* p);
void AdamWBy(cudaStream_t stream, int64_t n, const AdamWStep<float>* step,
             const float* scale, const float* g, float* p, float* m, float* v);
// Rounded to the nearest, ties to even.
void ToBf16(cudaStream_t stream, int64_t n, const float* x, uint16_t* narrow);
void FromBf16(cudaStream_t stream, int64_t n, const uint16_t* narrow, float* x);
void GatherRows(cudaStream_t stream, int64_t count, int64_t channels,
                const int32_t* sources, const float* x, float* out);
void CopyColumns(cudaStream_t stream, int64_t rows, int64_t columns,
                 const float* from, int64_t from_stride, float* to,
                 int64_t to_stride);

void AddRmsNorm(cudaStream_t stream, int64_t rows, int64_t channels, float eps,
                const float* x, const float* delta, const float* gain,
                float* sum, float* y, float* rstd);
// Without dgain.
void RmsNormBackwardInput(cudaStream_t stream, int64_t rows, int64_t channels,
                          const float* dy, const float* s, const float* rstd,
                          const float* gain, float* ds, bool accumulate);
void LayerNorm(cudaStream_t stream, int64_t rows, int64_t channels, float eps,
               const float* x, const float* gain, const float* bias, float* y,
               float* mean, float* rstd);
// Without dgain and dbias.
void LayerNormBackwardInput(cudaStream_t stream, int64_t rows, int64_t channels,
                            const float* dy, const float* x, const float* mean,
                            const float* rstd, const float* gain, float* dx,
                            bool accumulate);

// out[c] = sum over rows of dy[r, c] f, added to out if `accumulate`. f is 1 if
// x is null, x[r, c] rstd[r] if mean is null, else (x[r, c] - mean[r]) rstd[r].
// `partial` is scratch [kRowTilesMax, C].
void SumColumns(cudaStream_t stream, int64_t rows, int64_t channels,
                const float* dy, const float* x, const float* mean,
                const float* rstd, float* partial, float* out, bool accumulate);
// *result = sum of x, or of its squares. `partial` is scratch [kSumBlocksMax].
void SumElements(cudaStream_t stream, int64_t n, const float* x, bool squares,
                 double* partial, double* result);
void ClipInto(cudaStream_t stream, const double* sums, double clip_norm,
              float* scale);

// head_dim <= kHeadDimMax.
void Attention(cudaStream_t stream, const AttentionShape& shape,
               const float* qkv, float* out, float* log_sum);
// `dot` is scratch [B, H, T]; it receives AttentionDots.
void AttentionBackward(cudaStream_t stream, const AttentionShape& shape,
                       const float* qkv, const float* out, const float* log_sum,
                       const float* dout, float* dot, float* dqkv);

// dot [B, H, T] = dot product of each row of out with that of dout.
void AttentionDots(cudaStream_t stream, const AttentionShape& shape,
                   const float* out, const float* dout, float* dot);
void AttendBlock(cudaStream_t stream, const AttentionBlock& block,
                 const float* qkv, const float* keys_values, float* out,
                 float* log_sum);
void AttendBlockBackward(cudaStream_t stream, const AttentionBlock& block,
                         const float* qkv, const float* keys_values,
                         const float* out, const float* log_sum,
                         const float* dout, float* dot, float* dqkv,
                         float* dkeys_values);

// The same on tensor cores, with q, k, v and the probabilities rounded.
// head_dim <= kBf16HeadDimMax.
void AttentionBf16(cudaStream_t stream, const AttentionShape& shape,
                   const float* qkv, float* out, float* log_sum);
void AttentionBackwardBf16(cudaStream_t stream, const AttentionShape& shape,
                           const float* qkv, const float* out,
                           const float* log_sum, const float* dout, float* dot,
                           float* dqkv);

void CrossEntropy(cudaStream_t stream, int64_t rows, int64_t vocab,
                  const float* logits, const int32_t* targets, float* losses);
void CrossEntropyBackward(cudaStream_t stream, int64_t rows, int64_t vocab,
                          float scale, float* logits, const int32_t* targets,
                          float* losses);

void LogitTops(cudaStream_t stream, int64_t rows, int64_t count,
               const float* logits, float* tops);
void LogitSums(cudaStream_t stream, int64_t rows, int64_t begin, int64_t count,
               const float* logits, const int32_t* targets, const float* tops,
               float* sums, float* target_logits);
void LogitLosses(cudaStream_t stream, int64_t rows, const float* tops,
                 const float* sums, const float* target_logits, float* losses);
void LogitGradients(cudaStream_t stream, int64_t rows, int64_t begin,
                    int64_t count, float scale, const int32_t* targets,
                    const float* tops, const float* sums, float* logits);

void Route(cudaStream_t stream, const RouteShape& shape, const float* logits,
           float* probabilities, int32_t* experts, float* weights);
void RouteBackward(cudaStream_t stream, const RouteShape& shape,
                   const float* probabilities, const int32_t* experts,
                   const float* weights, const float* dweights,
                   const float* balance, float* dlogits);
// The counts of AddRouteTotals; SumColumns makes its sums.
void AddChoices(cudaStream_t stream, const RouteShape& shape,
                const int32_t* experts, float* counts);
void CountChoices(cudaStream_t stream, const RouteShape& shape,
                  const int32_t* experts, float* counts);
// `tile_counts` is scratch [E, tiles of kSortTile choices].
void PlanDispatch(cudaStream_t stream, const RouteShape& shape,
                  const int32_t* experts, const float* before,
                  int32_t* tile_counts, int32_t* slots, int32_t* sources,
                  int64_t* begins);
void CombineRows(cudaStream_t stream, const RouteShape& shape, int64_t channels,
                 const int32_t* slots, const float* weights, const float* y,
                 float* out);
void CombineRowsBackward(cudaStream_t stream, const RouteShape& shape,
                         int64_t channels, const int32_t* slots,
                         const float* weights, const float* y,
                         const float* dout, float* dy, float* dweights);

void Embedding(cudaStream_t stream, int64_t rows, int64_t begin, int64_t count,
               int64_t channels, const int32_t* tokens, const float* table,
               float* out);
// Elements of `scratch` of EmbeddingBackward.
int64_t EmbeddingScratch(int64_t rows, int64_t count);
void EmbeddingBackward(cudaStream_t stream, int64_t rows, int64_t begin,
                       int64_t count, int64_t channels, const int32_t* tokens,
                       const float* dout, int32_t* scratch, float* dtable);

// c[i, j] = sum over k of a(i, k) b(k, j), added to c if `accumulate`. c is
// [rows, columns], row-major. Element (i, k) of an operand is at i outer_step +
// k inner_step. Slow: for tests, and shapes without a cuBLASLt algorithm.
struct ProductOperand {
  const void* data = nullptr;
  int64_t outer_step = 0;  // Along c's rows or columns.
  int64_t inner_step = 0;  // Along k.
};
void Product(cudaStream_t stream, int64_t rows, int64_t columns, int64_t inner,
             const ProductOperand& a, const ProductOperand& b, bool is_bf16,
             float* c, bool accumulate);

}  // namespace atl::engine::cuda
