// The definition of every operation: one thread, one loop per formula, no SIMD.
// Thread-compatible.
//
// Tests hold the fast implementations to it in f32, and its gradients to finite
// differences in f64. Attention allocates about T elements of scratch per call.

#pragma once

#include <cstdint>

#include "worker/engine/ops/ops.h"

namespace atl::engine {

// Instantiated for float and double.
template <typename T>
class PlainOps : public BasicOps<T> {
 public:
  void Linear(int64_t m, int64_t n, int64_t k, const T* x, const T* w,
              T* y) override;
  void LinearBackwardInput(int64_t m, int64_t n, int64_t k, const T* dy,
                           const T* w, T* dx) override;
  void LinearBackwardWeight(int64_t m, int64_t n, int64_t k, const T* dy,
                            const T* x, T* dw, bool accumulate) override;
  void AddRmsNorm(int64_t rows, int64_t channels, T eps, const T* x,
                  const T* delta, const T* gain, T* sum, T* y,
                  T* rstd) override;
  void RmsNormBackward(int64_t rows, int64_t channels, const T* dy, const T* s,
                       const T* rstd, const T* gain, T* ds, T* dgain,
                       bool accumulate) override;
  void Rope(const AttentionShape& shape, const T* table, bool inverse,
            T* qkv) override;
  void Attention(const AttentionShape& shape, const T* qkv, T* out,
                 T* log_sum) override;
  void AttentionBackward(const AttentionShape& shape, const T* qkv,
                         const T* out, const T* log_sum, const T* dout,
                         T* dqkv) override;
  void SwiGlu(int64_t rows, int64_t inner, const T* gate_up, T* y) override;
  void SwiGluBackward(int64_t rows, int64_t inner, const T* gate_up,
                      const T* dy, T* dgate_up) override;
  void LayerNorm(int64_t rows, int64_t channels, T eps, const T* x,
                 const T* gain, const T* bias, T* y, T* mean, T* rstd) override;
  void LayerNormBackward(int64_t rows, int64_t channels, const T* dy,
                         const T* x, const T* mean, const T* rstd,
                         const T* gain, T* dx, T* dgain, T* dbias,
                         bool accumulate) override;
  void AddRows(int64_t rows, int64_t channels, const T* x, const T* delta,
               const T* bias, T* out) override;
  void AddBias(int64_t rows, int64_t channels, const T* bias, T* y) override;
  void BiasBackward(int64_t rows, int64_t channels, const T* dy, T* dbias,
                    bool accumulate) override;
  void AddPositions(int64_t rows, int64_t sequence_length, int64_t channels,
                    const T* table, T* x) override;
  void PositionsBackward(int64_t rows, int64_t sequence_length,
                         int64_t channels, const T* dx, T* dtable) override;
  void Gelu(int64_t n, const T* x, T* y) override;
  void GeluBackward(int64_t n, const T* x, const T* dy, T* dx) override;
  void Route(const RouteShape& shape, const T* logits, T* probabilities,
             int32_t* experts, T* weights) override;
  void RouteBackward(const RouteShape& shape, const T* probabilities,
                     const int32_t* experts, const T* weights,
                     const T* dweights, const T* balance, T* dlogits) override;
  void AddRouteTotals(const RouteShape& shape, const T* probabilities,
                      const int32_t* experts, T* counts, T* sums) override;
  void CountChoices(const RouteShape& shape, const int32_t* experts,
                    T* counts) override;
  void PlanDispatch(const RouteShape& shape, const int32_t* experts,
                    const T* before, int32_t* slots, int32_t* sources,
                    int64_t* begins) override;
  void GatherRows(int64_t count, int64_t channels, const int32_t* sources,
                  const T* x, T* out) override;
  void CombineRows(const RouteShape& shape, int64_t channels,
                   const int32_t* slots, const T* weights, const T* y,
                   T* out) override;
  void CombineRowsBackward(const RouteShape& shape, int64_t channels,
                           const int32_t* slots, const T* weights, const T* y,
                           const T* dout, T* dy, T* dweights) override;
  void Embedding(int64_t rows, int64_t begin, int64_t count, int64_t channels,
                 const int32_t* tokens, const T* table, T* out) override;
  void EmbeddingBackward(int64_t rows, int64_t begin, int64_t count,
                         int64_t channels, const int32_t* tokens, const T* dout,
                         T* dtable) override;
  void CrossEntropy(int64_t rows, int64_t vocab, const T* logits,
                    const int32_t* targets, T* losses) override;
  void CrossEntropyBackward(int64_t rows, int64_t vocab, T scale, T* logits,
                            const int32_t* targets, T* losses) override;
  void CopyColumns(int64_t rows, int64_t columns, const T* from,
                   int64_t from_stride, T* to, int64_t to_stride) override;
  void LogitTops(int64_t rows, int64_t count, const T* logits,
                 T* tops) override;
  void LogitSums(int64_t rows, int64_t begin, int64_t count, const T* logits,
                 const int32_t* targets, const T* tops, T* sums,
                 T* target_logits) override;
  void LogitLosses(int64_t rows, const T* tops, const T* sums,
                   const T* target_logits, T* losses) override;
  void LogitGradients(int64_t rows, int64_t begin, int64_t count, T scale,
                      const int32_t* targets, const T* tops, const T* sums,
                      T* logits) override;
  void AttendBlock(const AttentionBlock& block, const T* qkv,
                   const T* keys_values, T* out, T* log_sum) override;
  void AttendBlockBackward(const AttentionBlock& block, const T* qkv,
                           const T* keys_values, const T* out, const T* log_sum,
                           const T* dout, T* dqkv, T* dkeys_values) override;
  void SetZero(int64_t n, T* x) override;
  void Axpy(int64_t n, T alpha, const T* x, T* y) override;
  double Sum(int64_t n, const T* x) override;
  double SumOfSquares(int64_t n, const T* x) override;
  void Sgd(int64_t n, T learning_rate, T gradient_scale, const T* g,
           T* p) override;
  void AdamW(int64_t n, const AdamWStep<T>& step, const T* g, T* p, T* m,
             T* v) override;
};

extern template class PlainOps<float>;
extern template class PlainOps<double>;

}  // namespace atl::engine
