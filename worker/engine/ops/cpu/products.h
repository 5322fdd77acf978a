// The matrix products of CpuOps: Ops::Linear and its gradients, cut into tiles.
// oneDNN computes each tile with one thread.
//
//   kF32          f32 operands
//   kBf16Rounded  operands rounded to bfloat16 (to nearest, ties to even) and
//                 multiplied as f32: products of bfloat16 are exact in f32
//   kBf16Native   the same operands as bfloat16, for CPUs that multiply them
//                 faster than f32
//
// Both bf16 kinds sum in f32, in different orders. A weight is rounded once
// until ParametersChanged, other operands at each use. Thread-compatible.

#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "worker/engine/ops/cpu/kernels.h"
#include "worker/engine/ops/cpu/matmul.h"
#include "worker/engine/ops/cpu/scratch.h"
#include "worker/engine/ops/cpu/thread_pool.h"
#include "worker/engine/ops/cpu/tiling.h"

namespace atl::engine {

enum class ProductKind { kF32, kBf16Rounded, kBf16Native };

// Returns whether this CPU has what kBf16Native needs: AVX512-BF16 or AMX-BF16.
bool HasBf16Products();

// kBf16Native with AMX, or with AVX512-BF16 on CPUs that are not Intel's:
// Intel's AVX512-BF16 is half as fast as f32. Otherwise kBf16Rounded.
ProductKind BestBf16Products();

class Products {
 public:
  // `kernels` and `pool` must outlive it.
  Products(ProductKind kind, const Kernels& kernels, ThreadPool& pool)
      : kind_(kind),
        kernels_(kernels),
        pool_(pool),
        thread_scratch_(pool.thread_count()) {}

  void Linear(int64_t m, int64_t n, int64_t k, const float* x, const float* w,
              float* y);
  void LinearBackwardInput(int64_t m, int64_t n, int64_t k, const float* dy,
                           const float* w, float* dx);
  void LinearBackwardWeight(int64_t m, int64_t n, int64_t k, const float* dy,
                            const float* x, float* dw, bool accumulate);
  void ParametersChanged() { ++epoch_; }

 private:
  // A matrix in the format of the product: f32 or bfloat16.
  struct Operand {
    const void* data;
    int64_t stride;              // Elements from row to row.
    bool is_transposed = false;  // Rows are read as columns.

    int64_t row_step() const { return is_transposed ? 1 : stride; }
    int64_t column_step() const { return is_transposed ? stride : 1; }
  };
  struct Weight {
    Scratch<uint16_t> bf16;
    Scratch<float> rounded;
    int64_t epoch = -1;  // Epoch of the cached values.
  };

  Operand WeightOperand(const float* w, int64_t rows, int64_t columns);
  Operand Convert(const float* x, int64_t rows, int64_t columns,
                  Scratch<uint16_t>& bf16, Scratch<float>& rounded);
  // The part of `a` from (row, column) on.
  Operand At(const Operand& a, int64_t row, int64_t column) const;
  // c = a b (+ c), tile by tile. `ldc` is c's row stride, `k` the inner size.
  void Multiply(const OutputTiles& tiles, int64_t k, const Operand& a,
                const Operand& b, bool accumulate, float* c, int64_t ldc);
  void Prepare(const OutputTiles& tiles, const MatmulShape& shape);

  const ProductKind kind_;
  const Kernels& kernels_;
  ThreadPool& pool_;
  MatmulBf16 matmul_;
  int64_t epoch_ = 0;
  std::unordered_map<const float*, Weight> weights_;
  // For the first and second operand if it is no weight.
  Scratch<uint16_t> bf16_[2];
  Scratch<float> rounded_[2];
  std::vector<Scratch<char>> thread_scratch_;
};

}  // namespace atl::engine
