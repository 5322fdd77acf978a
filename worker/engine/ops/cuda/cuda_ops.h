// The operations on one CUDA device: cuBLASLt for matrix products, our kernels
// for the rest, all queued on one stream. Thread-compatible.
//
//   kF32   everything in f32; products without TF32
//   kBf16  Products round operands to bfloat16; tensor cores sum in f32.
//          Weights are rounded once, until ParametersChanged. Causal attention
//          with heads of up to 128 channels also rounds q, k, v, the
//          probabilities and their gradients, and its output if a library
//          computes it (FusedAttention). All else is f32: softmax, AttendBlock,
//          attention with wider heads.
//
// Same inputs give the same bits, on one type of device and one version of
// cuBLASLt and cuDNN: sums are trees that depend on shapes alone, and no float
// is added atomically. Scratch grows in the first calls of a shape and is kept.
// After a device error (status()) calls do nothing and sums are NaN.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/engine/ops/compute_type.h"
#include "worker/engine/ops/cuda/device_memory.h"
#include "worker/engine/ops/cuda/device_scratch.h"
#include "worker/engine/ops/cuda/error_latch.h"
#include "worker/engine/ops/cuda/fused_attention.h"
#include "worker/engine/ops/cuda/matmul.h"
#include "worker/engine/ops/cuda/recorder.h"
#include "worker/engine/ops/cuda/runtime.h"
#include "worker/engine/ops/ops.h"

namespace atl::engine::cuda {

// Optional features.
struct CudaOptions {
  // Records steps as CUDA graphs and replays them, if possible.
  bool graphs = true;
  // kBf16 attention by a library, for the shapes that it supports.
  bool fused_attention = true;
};

class CudaOps final : public Ops {
 public:
  // Makes a stream on `device`. `attention` may be null. See make_cuda_ops.h.
  //
  // UNAVAILABLE: the device cannot be used.
  static absl::StatusOr<std::unique_ptr<CudaOps>> Create(
      int device, ComputeType compute, std::unique_ptr<Matmul> matmul,
      const CudaOptions& options = {},
      std::unique_ptr<FusedAttention> attention = nullptr);
  ~CudaOps() override;

  int device() const { return latch_.device(); }
  // All work is queued here. Communication and operations wait for each other.
  cudaStream_t stream() const { return stream_; }
  // Waits for all queued work; then status() has its errors.
  absl::Status Synchronize();
  // The library that computes this attention, or why our kernel does.
  absl::StatusOr<std::string> AttentionLibrary(const AttentionShape& shape);
  // Products that our kernel computed for a library (matmul.h).
  std::map<ProductKind, std::string> product_fallbacks() const {
    return matmul_->fallbacks();
  }
  // Steps launched from an existing graph.
  int64_t replay_count() const { return recorder_.replay_count(); }

  Memory& memory() override { return memory_; }
  void FromHost(size_t bytes, const void* host, void* to) override;
  void ToHost(size_t bytes, const void* from, void* host) override;
  absl::StatusOr<std::unique_ptr<Copier>> MakeCopier() override;
  absl::Status status() const override { return latch_.status(); }
  // 1 GiB of logits: products of a large vocabulary fill the device.
  int64_t logit_run_elements() const override { return int64_t{1} << 28; }

  void ParametersChanged() override { ++epoch_; }
  void Linear(int64_t m, int64_t n, int64_t k, const float* x, const float* w,
              float* y) override;
  void LinearBackwardInput(int64_t m, int64_t n, int64_t k, const float* dy,
                           const float* w, float* dx) override;
  void LinearBackwardWeight(int64_t m, int64_t n, int64_t k, const float* dy,
                            const float* x, float* dw,
                            bool accumulate) override;
  void AddRmsNorm(int64_t rows, int64_t channels, float eps, const float* x,
                  const float* delta, const float* gain, float* sum, float* y,
                  float* rstd) override;
  void RmsNormBackward(int64_t rows, int64_t channels, const float* dy,
                       const float* s, const float* rstd, const float* gain,
                       float* ds, float* dgain, bool accumulate) override;
  void Rope(const AttentionShape& shape, const float* table, bool inverse,
            float* qkv) override;
  void Attention(const AttentionShape& shape, const float* qkv, float* out,
                 float* log_sum) override;
  void AttentionBackward(const AttentionShape& shape, const float* qkv,
                         const float* out, const float* log_sum,
                         const float* dout, float* dqkv) override;
  void SwiGlu(int64_t rows, int64_t inner, const float* gate_up,
              float* y) override;
  void SwiGluBackward(int64_t rows, int64_t inner, const float* gate_up,
                      const float* dy, float* dgate_up) override;
  void LayerNorm(int64_t rows, int64_t channels, float eps, const float* x,
                 const float* gain, const float* bias, float* y, float* mean,
                 float* rstd) override;
  void LayerNormBackward(int64_t rows, int64_t channels, const float* dy,
                         const float* x, const float* mean, const float* rstd,
                         const float* gain, float* dx, float* dgain,
                         float* dbias, bool accumulate) override;
  void AddRows(int64_t rows, int64_t channels, const float* x,
               const float* delta, const float* bias, float* out) override;
  void AddBias(int64_t rows, int64_t channels, const float* bias,
               float* y) override;
  void BiasBackward(int64_t rows, int64_t channels, const float* dy,
                    float* dbias, bool accumulate) override;
  void AddPositions(int64_t rows, int64_t sequence_length, int64_t channels,
                    const float* table, float* x) override;
  void PositionsBackward(int64_t rows, int64_t sequence_length,
                         int64_t channels, const float* dx,
                         float* dtable) override;
  void Gelu(int64_t n, const float* x, float* y) override;
  void GeluBackward(int64_t n, const float* x, const float* dy,
                    float* dx) override;
  void Route(const RouteShape& shape, const float* logits, float* probabilities,
             int32_t* experts, float* weights) override;
  void RouteBackward(const RouteShape& shape, const float* probabilities,
                     const int32_t* experts, const float* weights,
                     const float* dweights, const float* balance,
                     float* dlogits) override;
  void AddRouteTotals(const RouteShape& shape, const float* probabilities,
                      const int32_t* experts, float* counts,
                      float* sums) override;
  void CountChoices(const RouteShape& shape, const int32_t* experts,
                    float* counts) override;
  void PlanDispatch(const RouteShape& shape, const int32_t* experts,
                    const float* before, int32_t* slots, int32_t* sources,
                    int64_t* begins) override;
  void GatherRows(int64_t count, int64_t channels, const int32_t* sources,
                  const float* x, float* out) override;
  void CombineRows(const RouteShape& shape, int64_t channels,
                   const int32_t* slots, const float* weights, const float* y,
                   float* out) override;
  void CombineRowsBackward(const RouteShape& shape, int64_t channels,
                           const int32_t* slots, const float* weights,
                           const float* y, const float* dout, float* dy,
                           float* dweights) override;
  void Embedding(int64_t rows, int64_t begin, int64_t count, int64_t channels,
                 const int32_t* tokens, const float* table,
                 float* out) override;
  void EmbeddingBackward(int64_t rows, int64_t begin, int64_t count,
                         int64_t channels, const int32_t* tokens,
                         const float* dout, float* dtable) override;
  void CrossEntropy(int64_t rows, int64_t vocab, const float* logits,
                    const int32_t* targets, float* losses) override;
  void CrossEntropyBackward(int64_t rows, int64_t vocab, float scale,
                            float* logits, const int32_t* targets,
                            float* losses) override;
  void SetZero(int64_t n, float* x) override;
  void Axpy(int64_t n, float alpha, const float* x, float* y) override;
  double Sum(int64_t n, const float* x) override;
  double SumOfSquares(int64_t n, const float* x) override;
  void Sgd(int64_t n, float learning_rate, float gradient_scale, const float* g,
           float* p) override;
  void AdamW(int64_t n, const AdamWStep<float>& step, const float* g, float* p,
             float* m, float* v) override;
  bool replays() const override { return options_.graphs; }
  void Replay(int64_t key, absl::FunctionRef<void()> queue) override;
  std::string TakeNote() override { return recorder_.TakeNote(); }
  void SumInto(int64_t n, const float* x, bool squares, double* sum) override;
  void ClipInto(const double* sums, double clip_norm, float* scale) override;
  void SgdBy(int64_t n, const AdamWStep<float>* step, const float* scale,
             const float* g, float* p) override;
  void AdamWBy(int64_t n, const AdamWStep<float>* step, const float* scale,
               const float* g, float* p, float* m, float* v) override;
  void CopyColumns(int64_t rows, int64_t columns, const float* from,
                   int64_t from_stride, float* to, int64_t to_stride) override;
  void LogitTops(int64_t rows, int64_t count, const float* logits,
                 float* tops) override;
  void LogitSums(int64_t rows, int64_t begin, int64_t count,
                 const float* logits, const int32_t* targets, const float* tops,
                 float* sums, float* target_logits) override;
  void LogitLosses(int64_t rows, const float* tops, const float* sums,
                   const float* target_logits, float* losses) override;
  void LogitGradients(int64_t rows, int64_t begin, int64_t count, float scale,
                      const int32_t* targets, const float* tops,
                      const float* sums, float* logits) override;
  void AttendBlock(const AttentionBlock& block, const float* qkv,
                   const float* keys_values, float* out,
                   float* log_sum) override;
  void AttendBlockBackward(const AttentionBlock& block, const float* qkv,
                           const float* keys_values, const float* out,
                           const float* log_sum, const float* dout, float* dqkv,
                           float* dkeys_values) override;

 private:
  struct Weight {
    explicit Weight(Memory& memory) : bf16(memory) {}
    DeviceScratch<uint16_t> bf16;
    int64_t count = 0;
    int64_t epoch = -1;  // Epoch of the cached values.
  };

  // Waits for a stream's work and destroys it.
  struct StreamOwner {
    using pointer = cudaStream_t;
    void operator()(cudaStream_t stream) const {
      (void)cudaStreamDestroy(stream);
    }
  };
  using OwnedStream = std::unique_ptr<cudaStream_t, StreamOwner>;

  CudaOps(int device, ComputeType compute, OwnedStream stream,
          std::unique_ptr<Matmul> matmul, const CudaOptions& options,
          std::unique_ptr<FusedAttention> attention);

  // False after an error.
  bool Begin();
  bool BeginAttention(const AttentionShape& shape);
  bool IsBf16(const AttentionShape& shape) const;
  void AttendFused(const AttentionShape& shape, int64_t scratch_bytes,
                   const float* qkv, float* out, float* log_sum);
  // Keeps an error of the launch, as failed in `what`.
  void End(absl::string_view what);
  // Queues a kernel, unless there was an error.
  template <typename... P, typename... A>
  void Queue(absl::string_view what, void (*kernel)(cudaStream_t, P...),
             const A&... arguments) {
    if (!Begin()) return;
    kernel(stream_, arguments...);
    End(what);
  }
  // Null on failure; latch_ then has the error.
  template <typename T>
  T* Get(DeviceScratch<T>& scratch, int64_t count);
  // x [count] as an operand of products. Null after an error.
  const void* Operand(const float* x, int64_t count,
                      DeviceScratch<uint16_t>& narrow);
  const void* WeightOperand(const float* w, int64_t count);
  void Multiply(ProductKind kind, int64_t m, int64_t n, int64_t k,
                const void* first, const void* second, float* out,
                bool accumulate);
  double ComputeSum(int64_t n, const float* x, bool squares);
  void SumRows(int64_t rows, int64_t channels, const float* dy, const float* x,
               const float* mean, const float* rstd, float* out,
               bool accumulate);

  const CudaOptions options_;
  const ComputeType compute_;
  const OwnedStream owned_stream_;  // Before memory_, which uses it.
  const cudaStream_t stream_;
  ErrorLatch latch_;
  DeviceMemory memory_;
  std::unique_ptr<Matmul> matmul_;
  std::unique_ptr<FusedAttention> attention_;  // May be null.
  int64_t epoch_ = 0;
  std::unordered_map<const float*, Weight> weights_;
  // For the first and second operand if it is no weight.
  DeviceScratch<uint16_t> first_, second_;
  DeviceScratch<uint8_t> attention_scratch_;
  DeviceScratch<float> row_sums_;   // [kRowTilesMax, C]
  DeviceScratch<float> dots_;       // [B, H, T]
  DeviceScratch<double> partials_;  // [kSumBlocksMax + 1]
  DeviceScratch<int32_t> sort_;     // EmbeddingScratch, or counts of tiles.
  DeviceScratch<int64_t> begins_;   // [E + 1]
  Recorder recorder_;
};

template <typename T>
T* CudaOps::Get(DeviceScratch<T>& scratch, int64_t count) {
  absl::StatusOr<T*> data = scratch.Get(count);
  if (data.ok()) return *data;
  latch_.Fail(data.status());
  return nullptr;
}

}  // namespace atl::engine::cuda
