// The single-threaded vector kernels of CpuOps, compiled once for AVX2 and once
// for AVX-512. The program chooses at run time.
//
// Pure: no allocation, no thread. PlainOps defines each kernel, with the same
// name and shapes. A kernel computes a run of rows, or one (sequence, key/value
// head) of an attention. FMAs are explicit; only shapes set the order of sums.

#pragma once

#include <cstdint>

#include "worker/engine/ops/shapes.h"

namespace atl::engine {

// Queries that an attention kernel computes at a time.
inline constexpr int64_t kAttentionBlockRows = 48;

// One attention task: one sequence, one group of heads.
struct AttentionTask {
  int64_t sequence_length = 0;  // T
  // Keys and queries of an attention block; causal attention leaves them 0. The
  // rows of `q`, `out` and `log_sum` then begin at the block's first query.
  int64_t key_count = 0;
  int64_t query_count = 0;
  int64_t head_dim = 0;      // D
  int64_t group = 0;         // Query heads, H / G.
  int64_t qkv_stride = 0;    // Elements from row to row of qkv, dqkv.
  int64_t out_stride = 0;    // The same for out and dout.
  int64_t kv_stride = 0;     // The same for a block's k, v, dk and dv.
  const float* q = nullptr;  // First query head of the group, row 0.
  const float* k = nullptr;
  const float* v = nullptr;
  float* out = nullptr;      // Output of forward, input of backward.
  float* log_sum = nullptr;  // [group, T]; likewise.
  const float* dout = nullptr;
  float* dq = nullptr;
  float* dk = nullptr;
  float* dv = nullptr;
  float* scratch = nullptr;  // AttentionScratchElements, 64-byte aligned.
};

// The task of the `index`-th sequence and key/value head: sequence index / G,
// head index mod G.
AttentionTask MakeTask(const AttentionShape& shape, int64_t index,
                       const float* qkv, float* out, float* log_sum);

// Scratch elements of one task, forward or backward: O(T).
int64_t AttentionScratchElements(int64_t sequence_length, int64_t head_dim);

struct Kernels {
  const char* name;  // "avx2" or "avx512".

  void (*add_rms_norm)(int64_t rows, int64_t channels, float eps,
                       const float* x, const float* delta, const float* gain,
                       float* sum, float* y, float* rstd);
  // Adds to `dgain`.
  void (*rms_norm_backward)(int64_t rows, int64_t channels, const float* dy,
                            const float* s, const float* rstd,
                            const float* gain, float* ds, float* dgain,
                            bool accumulate);
  void (*layer_norm)(int64_t rows, int64_t channels, float eps, const float* x,
                     const float* gain, const float* bias, float* y,
                     float* mean, float* rstd);
  // Adds to `dgain` and `dbias`.
  void (*layer_norm_backward)(int64_t rows, int64_t channels, const float* dy,
                              const float* x, const float* mean,
                              const float* rstd, const float* gain, float* dx,
                              float* dgain, float* dbias, bool accumulate);
  // One row.
  void (*add_row)(int64_t channels, const float* x, const float* delta,
                  const float* bias, float* out);
  // Rows [begin, end).
  void (*rope)(const AttentionShape& shape, const float* table, bool inverse,
               int64_t begin, int64_t end, float* qkv);
  void (*attention)(const AttentionTask& task);
  void (*attention_backward)(const AttentionTask& task);
  // Ops::AttendBlock: no mask, merges into `out` and `log_sum`.
  void (*attend_block)(const AttentionTask& task);
  void (*attend_block_backward)(const AttentionTask& task);
  void (*swiglu)(int64_t rows, int64_t inner, const float* gate_up, float* y);
  void (*swiglu_backward)(int64_t rows, int64_t inner, const float* gate_up,
                          const float* dy, float* dgate_up);
  void (*gelu)(int64_t n, const float* x, float* y);
  void (*gelu_backward)(int64_t n, const float* x, const float* dy, float* dx);
  void (*softmax)(int64_t rows, int64_t n, const float* x, float* y);
  void (*cross_entropy)(int64_t rows, int64_t vocab, const float* logits,
                        const int32_t* targets, float* losses);
  void (*cross_entropy_backward)(int64_t rows, int64_t vocab, float scale,
                                 float* logits, const int32_t* targets,
                                 float* losses);
  // max(x); sum of exp(x - top); x = exp(x - top) factor.
  float (*max_of)(int64_t n, const float* x);
  float (*sum_exp)(int64_t n, const float* x, float top);
  void (*scaled_exp)(int64_t n, float top, float factor, float* x);
  // y = y + x. axpy rounds product and sum separately.
  void (*add)(int64_t n, const float* x, float* y);
  void (*axpy)(int64_t n, float alpha, const float* x, float* y);
  // y = alpha x; y = alpha x + y, rounded once; sum of x y.
  void (*scale)(int64_t n, float alpha, const float* x, float* y);
  void (*fused_axpy)(int64_t n, float alpha, const float* x, float* y);
  float (*dot)(int64_t n, const float* x, const float* y);
  double (*sum)(int64_t n, const float* x);
  double (*sum_of_squares)(int64_t n, const float* x);
  void (*sgd)(int64_t n, float learning_rate, float gradient_scale,
              const float* g, float* p);
  void (*adamw)(int64_t n, const AdamWStep<float>& step, const float* g,
                float* p, float* m, float* v);
  // Nearest bfloat16, ties to even; a NaN stays one. The first stores f32.
  void (*round_to_bf16)(int64_t n, const float* x, float* y);
  void (*to_bf16)(int64_t n, const float* x, uint16_t* y);
};

// AVX-512 if HasAvx512(), else AVX2.
const Kernels& BestKernels();

// Avx512Kernels requires HasAvx512(): AVX-512 F, BW, DQ and VL.
const Kernels& Avx2Kernels();
const Kernels& Avx512Kernels();
bool HasAvx512();

}  // namespace atl::engine
