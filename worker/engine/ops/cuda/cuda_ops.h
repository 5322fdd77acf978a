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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/ops/compute_type.h"
#include "worker/engine/ops/cuda/fused_attention.h"
#include "worker/engine/ops/cuda/matmul.h"
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

class CudaOps : public Ops {
 public:
  // Makes a stream on `device`. `attention` may be null. See make_cuda_ops.h.
  //
  // UNAVAILABLE: the device cannot be used.
  static absl::StatusOr<std::unique_ptr<CudaOps>> Create(
      int device, ComputeType compute, std::unique_ptr<Matmul> matmul,
      const CudaOptions& options = {},
      std::unique_ptr<FusedAttention> attention = nullptr);

  virtual int device() const = 0;
  // All work is queued here. Communication and operations wait for each other.
  virtual cudaStream_t stream() const = 0;
  // Waits for all queued work; then status() has its errors.
  virtual absl::Status Synchronize() = 0;
  // The library that computes this attention, or why our kernel does.
  virtual absl::StatusOr<std::string> AttentionLibrary(
      const AttentionShape& shape) = 0;
  // Products that our kernel computed for a library (matmul.h).
  virtual std::map<ProductKind, std::string> product_fallbacks() const = 0;
  // Steps launched from an existing graph.
  virtual int64_t replay_count() const = 0;
};

}  // namespace atl::engine::cuda
