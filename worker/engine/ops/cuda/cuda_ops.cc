#include "worker/engine/ops/cuda/cuda_ops.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status/status_macros.h"
#include "worker/engine/ops/cuda/error_latch.h"
#include "worker/engine/ops/cuda/kernels.h"
#include "worker/engine/ops/cuda/matmul.h"
#include "worker/engine/ops/cuda/plan/launch_plan.h"
#include "worker/engine/ops/cuda/plan/product_plan.h"
#include "worker/engine/ops/cuda/stream_copier.h"

namespace atl::engine::cuda {

absl::StatusOr<std::unique_ptr<CudaOps>> CudaOps::Create(
    int device, ComputeType compute, std::unique_ptr<Matmul> matmul,
    const CudaOptions& options, std::unique_ptr<FusedAttention> attention) {
  RETURN_IF_ERROR(ToStatus(cudaSetDevice(device), "selecting it", device));
  cudaStream_t stream = nullptr;
  RETURN_IF_ERROR(
      ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
               "making a stream", device));
  return absl::WrapUnique(new CudaOps(device, compute, OwnedStream(stream),
                                      std::move(matmul), options,
                                      std::move(attention)));
}

CudaOps::CudaOps(int device, ComputeType compute, OwnedStream stream,
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

CudaOps::~CudaOps() {
  (void)cudaSetDevice(device());
  (void)cudaStreamSynchronize(stream_);
}

absl::Status CudaOps::Synchronize() {
  if (Begin()) latch_.Check(cudaStreamSynchronize(stream_), "computing");
  return status();
}

bool CudaOps::Begin() {
  return latch_.ok() && latch_.Check(cudaSetDevice(device()), "selecting it");
}

void CudaOps::End(absl::string_view what) {
  latch_.Check(cudaGetLastError(), what);
}

void CudaOps::FromHost(size_t bytes, const void* host, void* to) {
  if (bytes == 0 || !Begin()) return;
  latch_.Check(
      cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, stream_),
      "copying to it");
  // A copy from pinned memory would still run after the call.
  latch_.Check(cudaStreamSynchronize(stream_), "copying to it");
}

void CudaOps::ToHost(size_t bytes, const void* from, void* host) {
  if (bytes == 0 || !Begin()) return;
  latch_.Check(
      cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, stream_),
      "copying from it");
  latch_.Check(cudaStreamSynchronize(stream_), "computing");
}

absl::StatusOr<std::unique_ptr<Copier>> CudaOps::MakeCopier() {
  return MakeStreamCopier(device(), stream_);
}

void CudaOps::Replay(int64_t key, absl::FunctionRef<void()> queue) {
  if (!options_.graphs) {
    queue();
  } else if (Begin()) {
    recorder_.Run(key, queue);
  }
}

const void* CudaOps::Operand(const float* x, int64_t count,
                             DeviceScratch<uint16_t>& narrow) {
  if (compute_ == ComputeType::kF32) return x;
  uint16_t* const to = Get(narrow, count);
  if (to != nullptr) ToBf16(stream_, count, x, to);
  return to;
}

const void* CudaOps::WeightOperand(const float* w, int64_t count) {
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

void CudaOps::Multiply(ProductKind kind, int64_t m, int64_t n, int64_t k,
                       const void* first, const void* second, float* out,
                       bool accumulate) {
  if (first == nullptr || second == nullptr) return;
  latch_.Fail(matmul_->Multiply(stream_, kind, m, n, k,
                                compute_ == ComputeType::kBf16, first, second,
                                out, accumulate));
  End("a matrix product");
}

void CudaOps::Linear(int64_t m, int64_t n, int64_t k, const float* x,
                     const float* w, float* y) {
  if (!Begin()) return;
  const void* const first = WeightOperand(w, n * k);
  Multiply(ProductKind::kLinear, m, n, k, first, Operand(x, m * k, second_), y,
           false);
}

void CudaOps::LinearBackwardInput(int64_t m, int64_t n, int64_t k,
                                  const float* dy, const float* w, float* dx) {
  if (!Begin()) return;
  const void* const first = WeightOperand(w, n * k);
  Multiply(ProductKind::kBackwardInput, m, n, k, first,
           Operand(dy, m * n, second_), dx, false);
}

void CudaOps::LinearBackwardWeight(int64_t m, int64_t n, int64_t k,
                                   const float* dy, const float* x, float* dw,
                                   bool accumulate) {
  if (!Begin()) return;
  const void* const first = Operand(x, m * k, first_);
  Multiply(ProductKind::kBackwardWeight, m, n, k, first,
           Operand(dy, m * n, second_), dw, accumulate);
}

void CudaOps::SumRows(int64_t rows, int64_t channels, const float* dy,
                      const float* x, const float* mean, const float* rstd,
                      float* out, bool accumulate) {
  float* const partial = Get(row_sums_, PlanRowTiles(rows).tiles * channels);
  if (partial == nullptr) return;
  SumColumns(stream_, rows, channels, dy, x, mean, rstd, partial, out,
             accumulate);
}

void CudaOps::AddRmsNorm(int64_t rows, int64_t channels, float eps,
                         const float* x, const float* delta, const float* gain,
                         float* sum, float* y, float* rstd) {
  Queue("RMSNorm", cuda::AddRmsNorm, rows, channels, eps, x, delta, gain, sum,
        y, rstd);
}

void CudaOps::RmsNormBackward(int64_t rows, int64_t channels, const float* dy,
                              const float* s, const float* rstd,
                              const float* gain, float* ds, float* dgain,
                              bool accumulate) {
  if (!Begin()) return;
  SumRows(rows, channels, dy, s, nullptr, rstd, dgain, false);
  RmsNormBackwardInput(stream_, rows, channels, dy, s, rstd, gain, ds,
                       accumulate);
  End("RMSNorm's gradient");
}

void CudaOps::LayerNorm(int64_t rows, int64_t channels, float eps,
                        const float* x, const float* gain, const float* bias,
                        float* y, float* mean, float* rstd) {
  Queue("LayerNorm", cuda::LayerNorm, rows, channels, eps, x, gain, bias, y,
        mean, rstd);
}

void CudaOps::LayerNormBackward(int64_t rows, int64_t channels, const float* dy,
                                const float* x, const float* mean,
                                const float* rstd, const float* gain, float* dx,
                                float* dgain, float* dbias, bool accumulate) {
  if (!Begin()) return;
  SumRows(rows, channels, dy, x, mean, rstd, dgain, false);
  SumRows(rows, channels, dy, nullptr, nullptr, nullptr, dbias, false);
  LayerNormBackwardInput(stream_, rows, channels, dy, x, mean, rstd, gain, dx,
                         accumulate);
  End("LayerNorm's gradient");
}

void CudaOps::AddRows(int64_t rows, int64_t channels, const float* x,
                      const float* delta, const float* bias, float* out) {
  Queue("adding rows", cuda::AddRows, rows, channels, x, delta, bias, out);
}

void CudaOps::AddBias(int64_t rows, int64_t channels, const float* bias,
                      float* y) {
  Queue("adding a bias", cuda::AddBias, rows, channels, bias, y);
}

void CudaOps::BiasBackward(int64_t rows, int64_t channels, const float* dy,
                           float* dbias, bool accumulate) {
  if (!Begin()) return;
  SumRows(rows, channels, dy, nullptr, nullptr, nullptr, dbias, accumulate);
  End("a bias's gradient");
}

void CudaOps::AddPositions(int64_t rows, int64_t sequence_length,
                           int64_t channels, const float* table, float* x) {
  Queue("adding positions", cuda::AddPositions, rows, sequence_length, channels,
        table, x);
}

void CudaOps::PositionsBackward(int64_t rows, int64_t sequence_length,
                                int64_t channels, const float* dx,
                                float* dtable) {
  Queue("positions' gradient", cuda::PositionsBackward, rows, sequence_length,
        channels, dx, dtable);
}

void CudaOps::Rope(const AttentionShape& shape, const float* table,
                   bool inverse, float* qkv) {
  Queue("the rotary embedding", cuda::Rope, shape, table, inverse, qkv);
}

bool CudaOps::BeginAttention(const AttentionShape& shape) {
  if (!Begin()) return false;
  if (shape.head_dim <= kHeadDimMax) return true;
  return latch_.Fail(absl::InvalidArgumentError(
      absl::StrCat("attention on CUDA supports heads of up to ", kHeadDimMax,
                   " channels, not ", shape.head_dim)));
}

bool CudaOps::IsBf16(const AttentionShape& shape) const {
  return compute_ == ComputeType::kBf16 && shape.head_dim <= kBf16HeadDimMax;
}

absl::StatusOr<std::string> CudaOps::AttentionLibrary(
    const AttentionShape& shape) {
  if (!Begin()) return status();
  if (attention_ == nullptr || !IsBf16(shape)) {
    return absl::FailedPreconditionError(
        "no attention library is in use, or this shape is computed in f32");
  }
  RETURN_IF_ERROR(attention_->ScratchBytes(shape).status());
  return attention_->name();
}

void CudaOps::AttendFused(const AttentionShape& shape, int64_t scratch_bytes,
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

void CudaOps::Attention(const AttentionShape& shape, const float* qkv,
                        float* out, float* log_sum) {
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

void CudaOps::AttentionBackward(const AttentionShape& shape, const float* qkv,
                                const float* out, const float* log_sum,
                                const float* dout, float* dqkv) {
  if (!BeginAttention(shape)) return;
  float* const dots = Get(dots_, shape.rows() * shape.head_count);
  if (dots == nullptr) return;
  if (IsBf16(shape)) {
    AttentionBackwardBf16(stream_, shape, qkv, out, log_sum, dout, dots, dqkv);
  } else {
    cuda::AttentionBackward(stream_, shape, qkv, out, log_sum, dout, dots,
                            dqkv);
  }
  End("attention's gradient");
}

void CudaOps::AttendBlock(const AttentionBlock& block, const float* qkv,
                          const float* keys_values, float* out,
                          float* log_sum) {
  if (!BeginAttention(block.shape)) return;
  cuda::AttendBlock(stream_, block, qkv, keys_values, out, log_sum);
  End("attention to a block");
}

void CudaOps::AttendBlockBackward(const AttentionBlock& block, const float* qkv,
                                  const float* keys_values, const float* out,
                                  const float* log_sum, const float* dout,
                                  float* dqkv, float* dkeys_values) {
  if (!BeginAttention(block.shape)) return;
  float* const dots = Get(dots_, block.shape.rows() * block.shape.head_count);
  if (dots == nullptr) return;
  cuda::AttendBlockBackward(stream_, block, qkv, keys_values, out, log_sum,
                            dout, dots, dqkv, dkeys_values);
  End("the gradient of attention to a block");
}

void CudaOps::SwiGlu(int64_t rows, int64_t inner, const float* gate_up,
                     float* y) {
  Queue("SwiGLU", cuda::SwiGlu, rows, inner, gate_up, y);
}

void CudaOps::SwiGluBackward(int64_t rows, int64_t inner, const float* gate_up,
                             const float* dy, float* dgate_up) {
  Queue("SwiGLU's gradient", cuda::SwiGluBackward, rows, inner, gate_up, dy,
        dgate_up);
}

void CudaOps::Gelu(int64_t n, const float* x, float* y) {
  Queue("GELU", cuda::Gelu, n, x, y);
}

void CudaOps::GeluBackward(int64_t n, const float* x, const float* dy,
                           float* dx) {
  Queue("GELU's gradient", cuda::GeluBackward, n, x, dy, dx);
}

void CudaOps::Embedding(int64_t rows, int64_t begin, int64_t count,
                        int64_t channels, const int32_t* tokens,
                        const float* table, float* out) {
  Queue("the embedding", cuda::Embedding, rows, begin, count, channels, tokens,
        table, out);
}

void CudaOps::EmbeddingBackward(int64_t rows, int64_t begin, int64_t count,
                                int64_t channels, const int32_t* tokens,
                                const float* dout, float* dtable) {
  if (!Begin()) return;
  int32_t* const scratch = Get(sort_, EmbeddingScratch(rows, count));
  if (scratch == nullptr) return;
  cuda::EmbeddingBackward(stream_, rows, begin, count, channels, tokens, dout,
                          scratch, dtable);
  End("the embedding's gradient");
}

void CudaOps::CrossEntropy(int64_t rows, int64_t vocab, const float* logits,
                           const int32_t* targets, float* losses) {
  Queue("cross-entropy", cuda::CrossEntropy, rows, vocab, logits, targets,
        losses);
}

void CudaOps::CrossEntropyBackward(int64_t rows, int64_t vocab, float scale,
                                   float* logits, const int32_t* targets,
                                   float* losses) {
  Queue("cross-entropy's gradient", cuda::CrossEntropyBackward, rows, vocab,
        scale, logits, targets, losses);
}

void CudaOps::CopyColumns(int64_t rows, int64_t columns, const float* from,
                          int64_t from_stride, float* to, int64_t to_stride) {
  Queue("copying columns", cuda::CopyColumns, rows, columns, from, from_stride,
        to, to_stride);
}

void CudaOps::LogitTops(int64_t rows, int64_t count, const float* logits,
                        float* tops) {
  Queue("the largest logits", cuda::LogitTops, rows, count, logits, tops);
}

void CudaOps::LogitSums(int64_t rows, int64_t begin, int64_t count,
                        const float* logits, const int32_t* targets,
                        const float* tops, float* sums, float* target_logits) {
  Queue("sums of logits", cuda::LogitSums, rows, begin, count, logits, targets,
        tops, sums, target_logits);
}

void CudaOps::LogitLosses(int64_t rows, const float* tops, const float* sums,
                          const float* target_logits, float* losses) {
  Queue("losses", cuda::LogitLosses, rows, tops, sums, target_logits, losses);
}

void CudaOps::LogitGradients(int64_t rows, int64_t begin, int64_t count,
                             float scale, const int32_t* targets,
                             const float* tops, const float* sums,
                             float* logits) {
  Queue("gradients of logits", cuda::LogitGradients, rows, begin, count, scale,
        targets, tops, sums, logits);
}

void CudaOps::SetZero(int64_t n, float* x) {
  if (n <= 0 || !Begin()) return;
  latch_.Check(cudaMemsetAsync(x, 0, sizeof(float) * n, stream_), "zeroing");
}

void CudaOps::Axpy(int64_t n, float alpha, const float* x, float* y) {
  Queue("adding vectors", cuda::Axpy, n, alpha, x, y);
}

double CudaOps::ComputeSum(int64_t n, const float* x, bool squares) {
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

void CudaOps::SumInto(int64_t n, const float* x, bool squares, double* sum) {
  if (!Begin()) return;
  double* const partials = Get(partials_, kSumBlocksMax + 1);
  if (partials == nullptr) return;
  SumElements(stream_, n, x, squares, partials, sum);
  End("a sum");
}

void CudaOps::ClipInto(const double* sums, double clip_norm, float* scale) {
  Queue("clipping", cuda::ClipInto, sums, clip_norm, scale);
}

double CudaOps::Sum(int64_t n, const float* x) {
  return ComputeSum(n, x, false);
}

double CudaOps::SumOfSquares(int64_t n, const float* x) {
  return ComputeSum(n, x, true);
}

void CudaOps::Sgd(int64_t n, float learning_rate, float gradient_scale,
                  const float* g, float* p) {
  Queue("SGD", cuda::Sgd, n, learning_rate, gradient_scale, g, p);
}

void CudaOps::AdamW(int64_t n, const AdamWStep<float>& step, const float* g,
                    float* p, float* m, float* v) {
  Queue("AdamW", cuda::AdamW, n, step, g, p, m, v);
}

void CudaOps::SgdBy(int64_t n, const AdamWStep<float>* step, const float* scale,
                    const float* g, float* p) {
  Queue("SGD", cuda::SgdBy, n, step, scale, g, p);
}

void CudaOps::AdamWBy(int64_t n, const AdamWStep<float>* step,
                      const float* scale, const float* g, float* p, float* m,
                      float* v) {
  Queue("AdamW", cuda::AdamWBy, n, step, scale, g, p, m, v);
}

}  // namespace atl::engine::cuda
