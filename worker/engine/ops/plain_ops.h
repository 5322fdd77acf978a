// The definition of every operation: one thread, one loop a formula, no SIMD.
//
// A template over the element type: the fast implementations are held to it in
// f32, gradients are held to finite differences in f64. Uses about T scratch
// elements per call of an attention, from the heap. Thread-compatible.

#ifndef WORKER_ENGINE_OPS_PLAIN_OPS_H_
#define WORKER_ENGINE_OPS_PLAIN_OPS_H_

#include <cstdint>

#include "worker/engine/ops/ops.h"

namespace atl::engine {

// Instantiated for float and double.
template <typename T>
class PlainOps final : public BasicOps<T> {
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
  void Embedding(int64_t rows, int64_t channels, const int32_t* tokens,
                 const T* table, T* out) override;
  void EmbeddingBackward(int64_t rows, int64_t vocab, int64_t channels,
                         const int32_t* tokens, const T* dout,
                         T* dtable) override;
  void CrossEntropy(int64_t rows, int64_t vocab, const T* logits,
                    const int32_t* targets, T* losses) override;
  void CrossEntropyBackward(int64_t rows, int64_t vocab, T scale, T* logits,
                            const int32_t* targets, T* losses) override;
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

#endif  // WORKER_ENGINE_OPS_PLAIN_OPS_H_
