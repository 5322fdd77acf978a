// The operations on the vocabulary: embedding and loss. A part of BasicOps
// (ops.h), whose rules hold here.

#ifndef WORKER_ENGINE_OPS_LOSS_OPS_H_
#define WORKER_ENGINE_OPS_LOSS_OPS_H_

#include <cstdint>

namespace atl::engine {

template <typename T>
class LossOps {
 public:
  virtual ~LossOps() = default;

  // --- Embedding: table [V, C] ---------------------------------------------

  virtual void Embedding(int64_t rows, int64_t channels, const int32_t* tokens,
                         const T* table, T* out) = 0;
  // Adds dout's rows to dtable, lower rows first.
  virtual void EmbeddingBackward(int64_t rows, int64_t vocab, int64_t channels,
                                 const int32_t* tokens, const T* dout,
                                 T* dtable) = 0;

  // --- Cross-entropy of logits [R, V] --------------------------------------

  // losses [R] = -log softmax(logits)[target].
  virtual void CrossEntropy(int64_t rows, int64_t vocab, const T* logits,
                            const int32_t* targets, T* losses) = 0;
  // The same, and overwrites logits with `scale` (softmax - onehot(target)).
  virtual void CrossEntropyBackward(int64_t rows, int64_t vocab, T scale,
                                    T* logits, const int32_t* targets,
                                    T* losses) = 0;

  // --- The same on a part of the vocabulary, where ranks share it ----------

  // Embedding and its gradient with the rows [begin, begin + count) of a table,
  // [count, C], alone: a token outside of them has the row 0, and no gradient.
  virtual void EmbeddingSlice(int64_t rows, int64_t begin, int64_t count,
                              int64_t channels, const int32_t* tokens,
                              const T* table, T* out) = 0;
  virtual void EmbeddingSliceBackward(int64_t rows, int64_t begin,
                                      int64_t count, int64_t channels,
                                      const int32_t* tokens, const T* dout,
                                      T* dtable) = 0;

  // The cross-entropy of logits [R, count] that are the columns [begin, begin +
  // count) of all: four steps, with a reduction over ranks behind the first
  // (the largest) and behind the second (the sums).
  //
  // tops [R]: the largest of each row. (Of a row with a NaN it may be any
  // value: the sum is then a NaN.)
  virtual void LogitTops(int64_t rows, int64_t count, const T* logits,
                         T* tops) = 0;
  // sums [R] = sum of exp(logit - top); target_logits [R]: that of the target,
  // or 0 if it is not among the columns.
  virtual void LogitSums(int64_t rows, int64_t begin, int64_t count,
                         const T* logits, const int32_t* targets, const T* tops,
                         T* sums, T* target_logits) = 0;
  // losses [R] = top + log(sum) - target logit.
  virtual void LogitLosses(int64_t rows, const T* tops, const T* sums,
                           const T* target_logits, T* losses) = 0;
  // Overwrites logits with `scale` (exp(logit - top) / sum - onehot(target)).
  virtual void LogitGradients(int64_t rows, int64_t begin, int64_t count,
                              T scale, const int32_t* targets, const T* tops,
                              const T* sums, T* logits) = 0;
};

}  // namespace atl::engine

#endif  // WORKER_ENGINE_OPS_LOSS_OPS_H_
