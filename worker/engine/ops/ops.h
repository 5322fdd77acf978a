// The operations of a model: the interface between the model, which is written
// once, and the devices that compute it. Thread-compatible.
//
// Implementations: PlainOps (the definition, in f32 and f64), CpuOps (fast) and
// CudaOps. Pointers are into memory() unless stated to be the host's. A call
// may return before its result is ready. Calls on one object run in order, and
// calls that return a value wait for it. status() holds a device's error.
//
// Letters as in model/model_config.h; R rows, one per token. Matrices are dense
// and row-major. Outputs overlap inputs only where stated. Token ids are valid.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/ops/copier.h"
#include "worker/engine/ops/shapes.h"
#include "worker/engine/tensor/memory.h"

namespace atl::engine {

template <typename T>
class BasicOps {
 public:
  virtual ~BasicOps() = default;

  // Holds the buffers of calls.
  virtual Memory& memory() { return HostMemory(); }
  // Copies from host memory, which the caller may reuse at once, and to host
  // memory, which waits.
  virtual void FromHost(size_t bytes, const void* host, void* to) {
    if (bytes > 0) std::memcpy(to, host, bytes);
  }
  virtual void ToHost(size_t bytes, const void* from, void* host) {
    if (bytes > 0) std::memcpy(host, from, bytes);
  }
  // Runs concurrently with the operations, which must outlive the copier.
  //
  // UNAVAILABLE: the device cannot be used.
  virtual absl::StatusOr<std::unique_ptr<Copier>> MakeCopier() {
    return std::make_unique<Copier>();
  }
  // OK, or the first error of the device: later results are invalid. Never
  // waits.
  virtual absl::Status status() const { return absl::OkStatus(); }
  // The model computes logits in runs of rows of about this many elements, so
  // [R, V] never exists whole. Gradients depend on it: they are sums over runs.
  virtual int64_t logit_run_elements() const { return int64_t{2} << 20; }

  // --- Linear maps: x [M, K], w [N, K], y [M, N] ---------------------------

  // Must be called after parameters change. An implementation may convert a
  // parameter `w` at its first use and keep the converted copy until this call.
  virtual void ParametersChanged() {}

  // y = x w^T.
  virtual void Linear(int64_t m, int64_t n, int64_t k, const T* x, const T* w,
                      T* y) = 0;
  // dx = dy w.
  virtual void LinearBackwardInput(int64_t m, int64_t n, int64_t k, const T* dy,
                                   const T* w, T* dx) = 0;
  // dw = dy^T x. `accumulate` adds to dw instead of overwriting it.
  virtual void LinearBackwardWeight(int64_t m, int64_t n, int64_t k,
                                    const T* dy, const T* x, T* dw,
                                    bool accumulate) = 0;

  // --- RMSNorm over rows of C channels -------------------------------------

  // s = x + delta (delta null: s = x); rstd [R] = 1 / sqrt(mean(s^2) + eps); y
  // = s rstd gain. `sum` receives s; it may be x, or null if delta is null.
  virtual void AddRmsNorm(int64_t rows, int64_t channels, T eps, const T* x,
                          const T* delta, const T* gain, T* sum, T* y,
                          T* rstd) = 0;
  // With n = s rstd and h = dy gain: ds = rstd (h - n mean(h n)), added to ds
  // if `accumulate`; dgain = sum over rows of dy n.
  virtual void RmsNormBackward(int64_t rows, int64_t channels, const T* dy,
                               const T* s, const T* rstd, const T* gain, T* ds,
                               T* dgain, bool accumulate) = 0;

  // --- LayerNorm over rows of C channels -----------------------------------

  // y = (x - mean) rstd gain + bias, with each row's mean [R] and rstd [R] = 1
  // / sqrt(variance + eps). The variance divides by C, not C - 1.
  virtual void LayerNorm(int64_t rows, int64_t channels, T eps, const T* x,
                         const T* gain, const T* bias, T* y, T* mean,
                         T* rstd) = 0;
  // With n = (x - mean) rstd and h = dy gain: dx = rstd (h - mean(h) - n mean(h
  // n)), added to dx if `accumulate`; sums over rows: dgain of dy n, dbias of
  // dy.
  virtual void LayerNormBackward(int64_t rows, int64_t channels, const T* dy,
                                 const T* x, const T* mean, const T* rstd,
                                 const T* gain, T* dx, T* dgain, T* dbias,
                                 bool accumulate) = 0;

  // --- The residual stream, biases and positions --------------------------

  // out = x + delta, or x + (delta + bias) unless `bias` [C] is null. In place
  // if `out` is x or delta.
  virtual void AddRows(int64_t rows, int64_t channels, const T* x,
                       const T* delta, const T* bias, T* out) = 0;
  // Adds the bias to each row of y.
  virtual void AddBias(int64_t rows, int64_t channels, const T* bias, T* y) = 0;
  // dbias = sum over rows of dy, added to dbias if `accumulate`.
  virtual void BiasBackward(int64_t rows, int64_t channels, const T* dy,
                            T* dbias, bool accumulate) = 0;
  // x[r] = x[r] + table[r mod T]; table is [T, C].
  virtual void AddPositions(int64_t rows, int64_t sequence_length,
                            int64_t channels, const T* table, T* x) = 0;
  // Adds dx's rows to dtable, lower rows first.
  virtual void PositionsBackward(int64_t rows, int64_t sequence_length,
                                 int64_t channels, const T* dx, T* dtable) = 0;

  // --- SwiGLU: gate_up [R, 2 F] holds gate, then up ------------------------

  // y [R, F] = silu(gate) up.
  virtual void SwiGlu(int64_t rows, int64_t inner, const T* gate_up, T* y) = 0;
  // dgate_up may be gate_up itself.
  virtual void SwiGluBackward(int64_t rows, int64_t inner, const T* gate_up,
                              const T* dy, T* dgate_up) = 0;

  // --- GELU: x sigmoid(2 u) = x (1 + tanh(u)) / 2 -------------------------
  // u = sqrt(2 / pi) (x + 0.044715 x^3)

  virtual void Gelu(int64_t n, const T* x, T* y) = 0;
  // dx may be x itself.
  virtual void GeluBackward(int64_t n, const T* x, const T* dy, T* dx) = 0;

  // --- Rotary embedding and attention ----------------------------------------

  // In place on the queries and keys of qkv. Row r has position r mod T. For a
  // head's channels a = z[i], b = z[i + D/2] (Hugging Face's half rotation):
  // a' = a cos - b sin, b' = b cos + a sin. `table` is [T, D]: per position D/2
  // cosines, then D/2 sines. `inverse` rotates back: it is also the gradient.
  virtual void Rope(const AttentionShape& shape, const T* table, bool inverse,
                    T* qkv) = 0;

  // Causal: out [R, H D] = softmax(q k^T / sqrt(D)) v. log_sum [B, H, T]
  // receives the logarithm of each softmax's denominator, for the backward
  // pass. Scratch is O(T) a thread, never T x T.
  virtual void Attention(const AttentionShape& shape, const T* qkv, T* out,
                         T* log_sum) = 0;
  // Overwrites all of dqkv.
  virtual void AttentionBackward(const AttentionShape& shape, const T* qkv,
                                 const T* out, const T* log_sum, const T* dout,
                                 T* dqkv) = 0;

  // --- Blocks of keys, where ranks share a sequence -----------------------

  // Adds a block of keys to the attention over other keys in `out` and
  // `log_sum`. With l the block's own log_sum and o its own output:
  // log_sum' = log(e^log_sum + e^l),
  // out' = e^(log_sum - log_sum') out + e^(l - log_sum') o.
  virtual void AttendBlock(const AttentionBlock& block, const T* qkv,
                           const T* keys_values, T* out, T* log_sum) = 0;
  // `out` and `log_sum` are over all keys. Adds to the block's query rows of
  // dqkv and to its rows of dkeys_values.
  virtual void AttendBlockBackward(const AttentionBlock& block, const T* qkv,
                                   const T* keys_values, const T* out,
                                   const T* log_sum, const T* dout, T* dqkv,
                                   T* dkeys_values) = 0;

  // --- A mixture of experts, with RouteShape's letters -----------------------

  // probabilities [R, E] = softmax(logits). experts [R, K] = the K likeliest in
  // falling order; on ties the lower index first. weights [R, K] = their
  // probabilities divided by the sum of these K (K = 1: exactly 1).
  virtual void Route(const RouteShape& shape, const T* logits, T* probabilities,
                     int32_t* experts, T* weights) = 0;
  // dlogits [R, E] from dweights [R, K] and from `balance` [E], the gradient of
  // each expert's probability in every row.
  virtual void RouteBackward(const RouteShape& shape, const T* probabilities,
                             const int32_t* experts, const T* weights,
                             const T* dweights, const T* balance,
                             T* dlogits) = 0;
  // Adds to counts [E] how often each expert occurs in `experts`, and to sums
  // [E] each expert's probabilities.
  virtual void AddRouteTotals(const RouteShape& shape, const T* probabilities,
                              const int32_t* experts, T* counts, T* sums) = 0;
  // counts [N, E]: how often each group chose each expert.
  virtual void CountChoices(const RouteShape& shape, const int32_t* experts,
                            T* counts) = 0;
  // Sorts the choices of all rows by expert, then by row, into slots. An expert
  // takes the first `capacity` choices of each group and drops the others.
  // `before` [N, E] counts choices that precede the group and use up its
  // capacity; null means none.
  //
  //   slots [R, K]    a choice's slot, or -1 if it is dropped
  //   sources [R K]   the row of each slot
  //   begins [E + 1]  expert e has the slots [begins[e], begins[e + 1]). Host
  //                   memory, so the call waits.
  virtual void PlanDispatch(const RouteShape& shape, const int32_t* experts,
                            const T* before, int32_t* slots, int32_t* sources,
                            int64_t* begins) = 0;
  // out[i] = x[sources[i]].
  virtual void GatherRows(int64_t count, int64_t channels,
                          const int32_t* sources, const T* x, T* out) = 0;
  // out[r] = sum over j, rising, of weights[r, j] y[slots[r, j]], without slots
  // that are -1. Null `weights` are all 1.
  virtual void CombineRows(const RouteShape& shape, int64_t channels,
                           const int32_t* slots, const T* weights, const T* y,
                           T* out) = 0;
  // dy[slots[r, j]] = weights[r, j] dout[r]. dweights[r, j] = dot product of
  // dout[r] and y[slots[r, j]], or 0 if the slot is -1. dy may be y itself.
  virtual void CombineRowsBackward(const RouteShape& shape, int64_t channels,
                                   const int32_t* slots, const T* weights,
                                   const T* y, const T* dout, T* dy,
                                   T* dweights) = 0;

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

  // --- Slices of a model, where ranks share one ---------------------------

  // Copies a [rows, columns] matrix. Strides are in elements from row to row.
  virtual void CopyColumns(int64_t rows, int64_t columns, const T* from,
                           int64_t from_stride, T* to, int64_t to_stride) = 0;
  void Copy(int64_t n, const T* from, T* to) {
    if (n > 0) CopyColumns(1, n, from, n, to, n);
  }
  void ReadValues(int64_t n, const T* x, T* host) {
    ToHost(static_cast<size_t>(n) * sizeof(T), x, host);
  }
  void WriteValues(int64_t n, const T* host, T* x) {
    FromHost(static_cast<size_t>(n) * sizeof(T), host, x);
  }

  // --- Flat vectors of n elements ------------------------------------------

  virtual void SetZero(int64_t n, T* x) = 0;
  // y = y + alpha x; the product and the sum are rounded separately.
  virtual void Axpy(int64_t n, T alpha, const T* x, T* y) = 0;
  // Sums in f64, in an order that does not depend on the thread count.
  virtual double Sum(int64_t n, const T* x) = 0;
  virtual double SumOfSquares(int64_t n, const T* x) = 0;
  // p = p - lr (g scale): each product is rounded, then subtracted.
  virtual void Sgd(int64_t n, T learning_rate, T gradient_scale, const T* g,
                   T* p) = 0;
  // With g = g gradient_scale: p = p (1 - lr wd); m = m + (1 - b1) (g - m);
  // v = b2 v + (1 - b2) g g;
  // p = p - (lr / bc1) m / (sqrt(v) / bc2_sqrt + eps).
  virtual void AdamW(int64_t n, const AdamWStep<T>& step, const T* g, T* p,
                     T* m, T* v) = 0;

  // --- Steps that a device can record and replay --------------------------
  //
  // None of these calls returns a value from the device or waits. All pointers,
  // also to single numbers, are into memory(). Defaults need host memory.

  // Returns whether Replay may do more than call `queue`; else these calls save
  // nothing.
  virtual bool replays() const { return false; }
  // Queues what `queue` queues. For one `key`, `queue` makes the same calls
  // with the same arguments each time. None returns a value, waits, or is the
  // first to take its memory. So the work may be queued again without calling
  // `queue`.
  virtual void Replay(int64_t key, absl::FunctionRef<void()> queue) { queue(); }
  // Names what was given up since the last call, and why, in a sentence for the
  // log: a step that cannot be recorded, a library that refused. Else empty.
  virtual std::string TakeNote() { return ""; }

  // *sum = sum of x, or of its squares, with the bits of Sum and SumOfSquares.
  virtual void SumInto(int64_t n, const T* x, bool squares, double* sum) {
    *sum = squares ? SumOfSquares(n, x) : Sum(n, x);
  }
  // With norm = sqrt(sums[1]): *scale = min(1, clip_norm / (norm + 1e-6)), or 1
  // if clip_norm <= 0. NaN if sums[0] or the norm is not finite.
  virtual void ClipInto(const double* sums, double clip_norm, T* scale) {
    *scale = ClipScale<T>(sums, clip_norm);
  }
  // Sgd and AdamW with the numbers of *step, but with *scale as gradient_scale.
  // They do nothing if *scale is a NaN.
  virtual void SgdBy(int64_t n, const AdamWStep<T>* step, const T* scale,
                     const T* g, T* p) {
    if (*scale == *scale) Sgd(n, step->learning_rate, *scale, g, p);
  }
  virtual void AdamWBy(int64_t n, const AdamWStep<T>* step, const T* scale,
                       const T* g, T* p, T* m, T* v) {
    AdamWStep<T> with_scale = *step;
    with_scale.gradient_scale = *scale;
    if (*scale == *scale) AdamW(n, with_scale, g, p, m, v);
  }
};

using Ops = BasicOps<float>;

}  // namespace atl::engine
