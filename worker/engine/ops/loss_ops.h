// Embedding and cross-entropy. A part of BasicOps; the rules in ops.h apply.

#pragma once

#include <cstdint>

namespace atl::engine {

template <typename T>
class LossOps {
 public:
  virtual ~LossOps() = default;

  // --- Embedding -----------------------------------------------------------

  // `table` [count, C] holds the rows of the tokens [begin, begin + count): the
  // whole vocabulary or a rank's slice. Another token gets the row 0 and no
  // gradient.
  virtual void Embedding(int64_t rows, int64_t begin, int64_t count,
                         int64_t channels, const int32_t* tokens,
                         const T* table, T* out) = 0;
  // Adds dout's rows to dtable, lower rows first.
  virtual void EmbeddingBackward(int64_t rows, int64_t begin, int64_t count,
                                 int64_t channels, const int32_t* tokens,
                                 const T* dout, T* dtable) = 0;

  // losses [R] = -log softmax(logits)[target].
  virtual void CrossEntropy(int64_t rows, int64_t vocab, const T* logits,
                            const int32_t* targets, T* losses) = 0;
  // Also overwrites logits with `scale` (softmax - onehot(target)).
  virtual void CrossEntropyBackward(int64_t rows, int64_t vocab, T scale,
                                    T* logits, const int32_t* targets,
                                    T* losses) = 0;

  // --- One rank's slice of the vocabulary ---------------------------------

  // Cross-entropy of the columns [begin, begin + count): logits [R, count]. It
  // takes four calls. The caller reduces over ranks `tops` (maximum) after the
  // first, `sums` and `target_logits` (sum) after the second.
  //
  // tops [R] = the largest logit of each row. A row with a NaN may have any:
  // its sum is a NaN.
  virtual void LogitTops(int64_t rows, int64_t count, const T* logits,
                         T* tops) = 0;
  // sums [R] = sum of exp(logit - top). target_logits [R] = the target's logit,
  // or 0 if the target is not among the columns.
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
