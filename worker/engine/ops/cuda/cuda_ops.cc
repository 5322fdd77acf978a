#include "worker/engine/ops/cuda/cuda_ops.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status/status_macros.h"
#include "worker/engine/ops/cuda/device_memory.h"
#include "worker/engine/ops/cuda/device_scratch.h"
#include "worker/engine/ops/cuda/error_latch.h"
#include "worker/engine/ops/cuda/kernels.h"
#include "worker/engine/ops/cuda/plan/launch_plan.h"
#include "worker/engine/ops/cuda/plan/product_plan.h"
#include "worker/engine/ops/cuda/recorder.h"
#include "worker/engine/ops/cuda/stream_copier.h"

namespace atl::engine::cuda {
namespace {

// Waits for a stream's work and destroys it.
struct StreamOwner {
  using pointer = cudaStream_t;
  void operator()(cudaStream_t stream) const {
    (void)cudaStreamDestroy(stream);
  }
};
using OwnedStream = std::unique_ptr<cudaStream_t, StreamOwner>;

class StreamOps final : public CudaOps {
 public:
  StreamOps(int device, ComputeType compute, OwnedStream stream,
            std::unique_ptr<Matmul> matmul, const CudaOptions& options,
            std::unique_ptr<FusedAttention> attention)
      : options_(options),
        compute_(compute),
        owned_stream_(std::move(stream)),
        stream_(owned_stream_.get()),
        latch_(device),
        memory_(device, stream_),
        matmul_(std::move(matmul)),
        attention_(std::move(attention)),
        first_(memory_),
        second_(memory_),
        attention_scratch_(memory_),
        row_sums_(memory_),
        dots_(memory_),
        partials_(memory_),
        sort_(memory_),
        begins_(memory_),
        recorder_(stream_, memory_, latch_) {}
  ~StreamOps() override {
    (void)cudaSetDevice(device());
    (void)cudaStreamSynchronize(stream_);
  }

  int device() const override { return latch_.device(); }
  cudaStream_t stream() const override { return stream_; }
  std::map<ProductKind, std::string> product_fallbacks() const override {
    return matmul_->fallbacks();
  }
  int64_t replay_count() const override { return recorder_.replay_count(); }
  Memory& memory() override { return memory_; }
  absl::Status status() const override { return latch_.status(); }
  // 1 GiB of logits: products of a large vocabulary fill the device.
  int64_t logit_run_elements() const override { return int64_t{1} << 28; }
  void ParametersChanged() override { ++epoch_; }
  bool replays() const override { return options_.graphs; }
  std::string TakeNote() override { return recorder_.TakeNote(); }

  absl::Status Synchronize() override {
    if (Begin()) latch_.Check(cudaStreamSynchronize(stream_), "computing");
    return status();
  }

  void FromHost(size_t bytes, const void* host, void* to) override {
    if (bytes == 0 || !Begin()) return;
    latch_.Check(
        cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, stream_),
        "copying to it");
    // A copy from pinned memory would still run after the call.
    latch_.Check(cudaStreamSynchronize(stream_), "copying to it");
  }

  void ToHost(size_t bytes, const void* from, void* host) override {
    if (bytes == 0 || !Begin()) return;
    latch_.Check(
        cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, stream_),
        "copying from it");
    latch_.Check(cudaStreamSynchronize(stream_), "computing");
  }

  absl::StatusOr<std::unique_ptr<Copier>> MakeCopier() override {
    return MakeStreamCopier(device(), stream_);
  }

  void Replay(int64_t key, absl::FunctionRef<void()> queue) override {
    if (!options_.graphs) {
      queue();
    } else if (Begin()) {
      recorder_.Run(key, queue);
    }
  }

  void Linear(int64_t m, int64_t n, int64_t k, const float* x, const float* w,
              float* y) override {
    if (!Begin()) return;
    const void* const first = WeightOperand(w, n * k);
    Multiply(ProductKind::kLinear, m, n, k, first, Operand(x, m * k, second_),
             y, false);
  }

  void LinearBackwardInput(int64_t m, int64_t n, int64_t k, const float* dy,
                           const float* w, float* dx) override {
    if (!Begin()) return;
    const void* const first = WeightOperand(w, n * k);
    Multiply(ProductKind::kBackwardInput, m, n, k, first,
             Operand(dy, m * n, second_), dx, false);
  }

  void LinearBackwardWeight(int64_t m, int64_t n, int64_t k, const float* dy,
                            const float* x, float* dw,
                            bool accumulate) override {
    if (!Begin()) return;
    const void* const first = Operand(x, m * k, first_);
    Multiply(ProductKind::kBackwardWeight, m, n, k, first,
             Operand(dy, m * n, second_), dw, accumulate);
  }

  void AddRmsNorm(int64_t rows, int64_t channels, float eps, const float* x,
                  const float* delta, const float* gain, float* sum, float* y,
                  float* rstd) override {
    Queue("RMSNorm", cuda::AddRmsNorm, rows, channels, eps, x, delta, gain, sum,
          y, rstd);
  }

  void RmsNormBackward(int64_t rows, int64_t channels, const float* dy,
                       const float* s, const float* rstd, const float* gain,
                       float* ds, float* dgain, bool accumulate) override {
    if (!Begin()) return;
    SumRows(rows, channels, dy, s, nullptr, rstd, dgain, false);
    RmsNormBackwardInput(stream_, rows, channels, dy, s, rstd, gain, ds,
                         accumulate);
    End("RMSNorm's gradient");
  }

  void LayerNorm(int64_t rows, int64_t channels, float eps, const float* x,
                 const float* gain, const float* bias, float* y, float* mean,
                 float* rstd) override {
    Queue("LayerNorm", cuda::LayerNorm, rows, channels, eps, x, gain, bias, y,
          mean, rstd);
  }

  void LayerNormBackward(int64_t rows, int64_t channels, const float* dy,
                         const float* x, const float* mean, const float* rstd,
                         const float* gain, float* dx, float* dgain,
                         float* dbias, bool accumulate) override {
    if (!Begin()) return;
    SumRows(rows, channels, dy, x, mean, rstd, dgain, false);
    SumRows(rows, channels, dy, nullptr, nullptr, nullptr, dbias, false);
    LayerNormBackwardInput(stream_, rows, channels, dy, x, mean, rstd, gain, dx,
                           accumulate);
    End("LayerNorm's gradient");
  }

  void AddRows(int64_t rows, int64_t channels, const float* x,
               const float* delta, const float* bias, float* out) override {
    Queue("adding rows", cuda::AddRows, rows, channels, x, delta, bias, out);
  }

  void AddBias(int64_t rows, int64_t channels, const float* bias,
               float* y) override {
    Queue("adding a bias", cuda::AddBias, rows, channels, bias, y);
  }

  void BiasBackward(int64_t rows, int64_t channels, const float* dy,
                    float* dbias, bool accumulate) override {
    if (!Begin()) return;
    SumRows(rows, channels, dy, nullptr, nullptr, nullptr, dbias, accumulate);
    End("a bias's gradient");
  }

  void AddPositions(int64_t rows, int64_t sequence_length, int64_t channels,
                    const float* table, float* x) override {
    Queue("adding positions", cuda::AddPositions, rows, sequence_length,
          channels, table, x);
  }

  void PositionsBackward(int64_t rows, int64_t sequence_length,
                         int64_t channels, const float* dx,
                         float* dtable) override {
    Queue("positions' gradient", cuda::PositionsBackward, rows, sequence_length,
          channels, dx, dtable);
  }

  void Rope(const AttentionShape& shape, const float* table, bool inverse,
            float* qkv) override {
    Queue("the rotary embedding", cuda::Rope, shape, table, inverse, qkv);
  }

  absl::StatusOr<std::string> AttentionLibrary(
      const AttentionShape& shape) override {
    if (!Begin()) return status();
    if (attention_ == nullptr || !IsBf16(shape)) {
      return absl::FailedPreconditionError(
          "no attention library is in use, or this shape is computed in f32");
    }
    RETURN_IF_ERROR(attention_->ScratchBytes(shape).status());
    return attention_->name();
  }

  void Attention(const AttentionShape& shape, const float* qkv, float* out,
                 float* log_sum) override {
    if (!BeginAttention(shape)) return;
    if (IsBf16(shape) && attention_ != nullptr) {
      const absl::StatusOr<int64_t> scratch = attention_->ScratchBytes(shape);
      if (scratch.ok()) {
        AttendFused(shape, *scratch, qkv, out, log_sum);
        return End("attention");
      }
    }
    if (IsBf16(shape)) {
      AttentionBf16(stream_, shape, qkv, out, log_sum);
    } else {
      cuda::Attention(stream_, shape, qkv, out, log_sum);
    }
    End("attention");
  }

  void AttentionBackward(const AttentionShape& shape, const float* qkv,
                         const float* out, const float* log_sum,
                         const float* dout, float* dqkv) override {
    if (!BeginAttention(shape)) return;
    float* const dots = Get(dots_, shape.rows() * shape.head_count);
    if (dots == nullptr) return;
    if (IsBf16(shape)) {
      AttentionBackwardBf16(stream_, shape, qkv, out, log_sum, dout, dots,
                            dqkv);
    } else {
      cuda::AttentionBackward(stream_, shape, qkv, out, log_sum, dout, dots,
                              dqkv);
    }
    End("attention's gradient");
  }

  void AttendBlock(const AttentionBlock& block, const float* qkv,
                   const float* keys_values, float* out,
                   float* log_sum) override {
    if (!BeginAttention(block.shape)) return;
    cuda::AttendBlock(stream_, block, qkv, keys_values, out, log_sum);
    End("attention to a block");
  }

  void AttendBlockBackward(const AttentionBlock& block, const float* qkv,
                           const float* keys_values, const float* out,
                           const float* log_sum, const float* dout, float* dqkv,
                           float* dkeys_values) override {
    if (!BeginAttention(block.shape)) return;
    float* const dots = Get(dots_, block.shape.rows() * block.shape.head_count);
    if (dots == nullptr) return;
    cuda::AttendBlockBackward(stream_, block, qkv, keys_values, out, log_sum,
                              dout, dots, dqkv, dkeys_values);
    End("the gradient of attention to a block");
  }

  void SwiGlu(int64_t rows, int64_t inner, const float* gate_up,
              float* y) override {
    Queue("SwiGLU", cuda::SwiGlu, rows, inner, gate_up, y);
  }

  void SwiGluBackward(int64_t rows, int64_t inner, const float* gate_up,
                      const float* dy, float* dgate_up) override {
    Queue("SwiGLU's gradient", cuda::SwiGluBackward, rows, inner, gate_up, dy,
          dgate_up);
  }

  void Gelu(int64_t n, const float* x, float* y) override {
    Queue("GELU", cuda::Gelu, n, x, y);
  }

  void GeluBackward(int64_t n, const float* x, const float* dy,
                    float* dx) override {
    Queue("GELU's gradient", cuda::GeluBackward, n, x, dy, dx);
  }

  void Route(const RouteShape& shape, const float* logits, float* probabilities,
             int32_t* experts, float* weights) override {
    Queue("routing", cuda::Route, shape, logits, probabilities, experts,
          weights);
  }

  void RouteBackward(const RouteShape& shape, const float* probabilities,
                     const int32_t* experts, const float* weights,
                     const float* dweights, const float* balance,
                     float* dlogits) override {
    Queue("routing's gradient", cuda::RouteBackward, shape, probabilities,
          experts, weights, dweights, balance, dlogits);
  }

  void AddRouteTotals(const RouteShape& shape, const float* probabilities,
                      const int32_t* experts, float* counts,
                      float* sums) override {
    if (!Begin()) return;
    cuda::AddChoices(stream_, shape, experts, counts);
    SumRows(shape.rows, shape.expert_count, probabilities, nullptr, nullptr,
            nullptr, sums, true);
    End("counting choices");
  }

  void CountChoices(const RouteShape& shape, const int32_t* experts,
                    float* counts) override {
    Queue("counting the choices of groups", cuda::CountChoices, shape, experts,
          counts);
  }

  void PlanDispatch(const RouteShape& shape, const int32_t* experts,
                    const float* before, int32_t* slots, int32_t* sources,
                    int64_t* begins) override {
    // The host reads `begins` even after an error.
    std::fill_n(begins, shape.expert_count + 1, 0);
    if (!Begin()) return;
    const int64_t choices = shape.rows * shape.experts_per_token;
    int32_t* const counts =
        Get(sort_, PlanSort(choices, 1).tiles * shape.expert_count);
    int64_t* const places = Get(begins_, shape.expert_count + 1);
    if (counts == nullptr || places == nullptr) return;
    cuda::PlanDispatch(stream_, shape, experts, before, counts, slots, sources,
                       places);
    End("sorting choices");
    ToHost(sizeof(int64_t) * (shape.expert_count + 1), places, begins);
  }

  void GatherRows(int64_t count, int64_t channels, const int32_t* sources,
                  const float* x, float* out) override {
    Queue("gathering rows", cuda::GatherRows, count, channels, sources, x, out);
  }

  void CombineRows(const RouteShape& shape, int64_t channels,
                   const int32_t* slots, const float* weights, const float* y,
                   float* out) override {
    Queue("combining rows", cuda::CombineRows, shape, channels, slots, weights,
          y, out);
  }

  void CombineRowsBackward(const RouteShape& shape, int64_t channels,
                           const int32_t* slots, const float* weights,
                           const float* y, const float* dout, float* dy,
                           float* dweights) override {
    Queue("combined rows' gradient", cuda::CombineRowsBackward, shape, channels,
          slots, weights, y, dout, dy, dweights);
  }

  void Embedding(int64_t rows, int64_t begin, int64_t count, int64_t channels,
                 const int32_t* tokens, const float* table,
                 float* out) override {
    Queue("the embedding", cuda::Embedding, rows, begin, count, channels,
          tokens, table, out);
  }

  void EmbeddingBackward(int64_t rows, int64_t begin, int64_t count,
                         int64_t channels, const int32_t* tokens,
                         const float* dout, float* dtable) override {
    if (!Begin()) return;
    int32_t* const scratch = Get(sort_, EmbeddingScratch(rows, count));
    if (scratch == nullptr) return;
    cuda::EmbeddingBackward(stream_, rows, begin, count, channels, tokens, dout,
                            scratch, dtable);
    End("the embedding's gradient");
  }

  void CrossEntropy(int64_t rows, int64_t vocab, const float* logits,
                    const int32_t* targets, float* losses) override {
    Queue("cross-entropy", cuda::CrossEntropy, rows, vocab, logits, targets,
          losses);
  }

  void CrossEntropyBackward(int64_t rows, int64_t vocab, float scale,
                            float* logits, const int32_t* targets,
                            float* losses) override {
    Queue("cross-entropy's gradient", cuda::CrossEntropyBackward, rows, vocab,
          scale, logits, targets, losses);
  }

  void CopyColumns(int64_t rows, int64_t columns, const float* from,
                   int64_t from_stride, float* to, int64_t to_stride) override {
    Queue("copying columns", cuda::CopyColumns, rows, columns, from,
          from_stride, to, to_stride);
  }

  void LogitTops(int64_t rows, int64_t count, const float* logits,
                 float* tops) override {
    Queue("the largest logits", cuda::LogitTops, rows, count, logits, tops);
  }

  void LogitSums(int64_t rows, int64_t begin, int64_t count,
                 const float* logits, const int32_t* targets, const float* tops,
                 float* sums, float* target_logits) override {
    Queue("sums of logits", cuda::LogitSums, rows, begin, count, logits,
          targets, tops, sums, target_logits);
  }

  void LogitLosses(int64_t rows, const float* tops, const float* sums,
                   const float* target_logits, float* losses) override {
    Queue("losses", cuda::LogitLosses, rows, tops, sums, target_logits, losses);
  }

  void LogitGradients(int64_t rows, int64_t begin, int64_t count, float scale,
                      const int32_t* targets, const float* tops,
                      const float* sums, float* logits) override {
    Queue("gradients of logits", cuda::LogitGradients, rows, begin, count,
          scale, targets, tops, sums, logits);
  }

  void SetZero(int64_t n, float* x) override {
    if (n <= 0 || !Begin()) return;
    latch_.Check(cudaMemsetAsync(x, 0, sizeof(float) * n, stream_), "zeroing");
  }

  void Axpy(int64_t n, float alpha, const float* x, float* y) override {
    Queue("adding vectors", cuda::Axpy, n, alpha, x, y);
  }

  void SumInto(int64_t n, const float* x, bool squares, double* sum) override {
    if (!Begin()) return;
    double* const partials = Get(partials_, kSumBlocksMax + 1);
    if (partials == nullptr) return;
    SumElements(stream_, n, x, squares, partials, sum);
    End("a sum");
  }

  void ClipInto(const double* sums, double clip_norm, float* scale) override {
    Queue("clipping", cuda::ClipInto, sums, clip_norm, scale);
  }

  double Sum(int64_t n, const float* x) override {
    return ComputeSum(n, x, false);
  }

  double SumOfSquares(int64_t n, const float* x) override {
    return ComputeSum(n, x, true);
  }

  void Sgd(int64_t n, float learning_rate, float gradient_scale, const float* g,
           float* p) override {
    Queue("SGD", cuda::Sgd, n, learning_rate, gradient_scale, g, p);
  }

  void AdamW(int64_t n, const AdamWStep<float>& step, const float* g, float* p,
             float* m, float* v) override {
    Queue("AdamW", cuda::AdamW, n, step, g, p, m, v);
  }

  void SgdBy(int64_t n, const AdamWStep<float>* step, const float* scale,
             const float* g, float* p) override {
    Queue("SGD", cuda::SgdBy, n, step, scale, g, p);
  }

  void AdamWBy(int64_t n, const AdamWStep<float>* step, const float* scale,
               const float* g, float* p, float* m, float* v) override {
    Queue("AdamW", cuda::AdamWBy, n, step, scale, g, p, m, v);
  }

 private:
  struct Weight {
    explicit Weight(Memory& memory) : bf16(memory) {}
    DeviceScratch<uint16_t> bf16;
    int64_t count = 0;
    int64_t epoch = -1;  // Epoch of the cached values.
  };

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
  T* Get(DeviceScratch<T>& scratch, int64_t count) {
    absl::StatusOr<T*> data = scratch.Get(count);
    if (data.ok()) return *data;
    latch_.Fail(data.status());
    return nullptr;
  }

  // False after an error.
  bool Begin() {
    return latch_.ok() && latch_.Check(cudaSetDevice(device()), "selecting it");
  }

  // Keeps an error of the launch, as failed in `what`.
  void End(absl::string_view what) { latch_.Check(cudaGetLastError(), what); }

  // x [count] as an operand of products. Null after an error.
  const void* Operand(const float* x, int64_t count,
                      DeviceScratch<uint16_t>& narrow) {
    if (compute_ == ComputeType::kF32) return x;
    uint16_t* const to = Get(narrow, count);
    if (to != nullptr) ToBf16(stream_, count, x, to);
    return to;
  }

  const void* WeightOperand(const float* w, int64_t count) {
    if (compute_ == ComputeType::kF32) return w;
    Weight& weight = weights_.try_emplace(w, memory_).first->second;
    uint16_t* const to = Get(weight.bf16, count);
    if (to == nullptr) return nullptr;
    if (weight.epoch != epoch_ || weight.count < count) {
      ToBf16(stream_, count, w, to);
      weight.epoch = epoch_;
      weight.count = count;
    }
    return to;
  }

  void Multiply(ProductKind kind, int64_t m, int64_t n, int64_t k,
                const void* first, const void* second, float* out,
                bool accumulate) {
    if (first == nullptr || second == nullptr) return;
    latch_.Fail(matmul_->Multiply(stream_, kind, m, n, k,
                                  compute_ == ComputeType::kBf16, first, second,
                                  out, accumulate));
    End("a matrix product");
  }

  void SumRows(int64_t rows, int64_t channels, const float* dy, const float* x,
               const float* mean, const float* rstd, float* out,
               bool accumulate) {
    float* const partial = Get(row_sums_, PlanRowTiles(rows).tiles * channels);
    if (partial == nullptr) return;
    SumColumns(stream_, rows, channels, dy, x, mean, rstd, partial, out,
               accumulate);
  }

  bool BeginAttention(const AttentionShape& shape) {
    if (!Begin()) return false;
    if (shape.head_dim <= kHeadDimMax) return true;
    return latch_.Fail(absl::InvalidArgumentError(
        absl::StrCat("attention on CUDA supports heads of up to ", kHeadDimMax,
                     " channels, not ", shape.head_dim)));
  }

  bool IsBf16(const AttentionShape& shape) const {
    return compute_ == ComputeType::kBf16 && shape.head_dim <= kBf16HeadDimMax;
  }

  void AttendFused(const AttentionShape& shape, int64_t scratch_bytes,
                   const float* qkv, float* out, float* log_sum) {
    const int64_t count = shape.rows() * shape.out_size();
    uint16_t* const rows = Get(first_, shape.rows() * shape.qkv_size());
    uint16_t* const narrow = Get(second_, count);
    uint8_t* const scratch =
        Get(attention_scratch_, std::max<int64_t>(1, scratch_bytes));
    if (rows == nullptr || narrow == nullptr || scratch == nullptr) return;
    ToBf16(stream_, shape.rows() * shape.qkv_size(), qkv, rows);
    latch_.Fail(
        attention_->Attend(stream_, shape, rows, narrow, log_sum, scratch));
    FromBf16(stream_, count, narrow, out);
  }

  double ComputeSum(int64_t n, const float* x, bool squares) {
    double result = std::numeric_limits<double>::quiet_NaN();
    if (!Begin()) return result;
    double* const partials = Get(partials_, kSumBlocksMax + 1);
    if (partials == nullptr) return result;
    SumElements(stream_, n, x, squares, partials, partials + kSumBlocksMax);
    End("a sum");
    double sum = 0;
    ToHost(sizeof(sum), partials + kSumBlocksMax, &sum);
    return latch_.ok() ? sum : result;
  }

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

}  // namespace

absl::StatusOr<std::unique_ptr<CudaOps>> CudaOps::Create(
    int device, ComputeType compute, std::unique_ptr<Matmul> matmul,
    const CudaOptions& options, std::unique_ptr<FusedAttention> attention) {
  RETURN_IF_ERROR(ToStatus(cudaSetDevice(device), "selecting it", device));
  cudaStream_t stream = nullptr;
  RETURN_IF_ERROR(
      ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
               "making a stream", device));
  return std::make_unique<StreamOps>(device, compute, OwnedStream(stream),
                                     std::move(matmul), options,
                                     std::move(attention));
}

}  // namespace atl::engine::cuda
