#include "worker/engine/ops/cpu/products.h"

#include <cpuid.h>
#include <omp.h>

#include <algorithm>

#include "base/status/check.h"
#include "oneapi/dnnl/dnnl.h"

namespace atl::engine {
namespace {

// Tile sizes, see tiling.h.
constexpr int64_t kLinearRowsMax = 256;
constexpr int64_t kLinearColumnsMin = 128;
constexpr int64_t kWeightTileMax = 352;
constexpr int64_t kWeightTileMin = 32;
constexpr int64_t kElementsATask = 16384;

bool HasAmxBf16() {
  // oneDNN also asks the system whether AMX tiles may be used.
  return dnnl_get_effective_cpu_isa() == dnnl_cpu_isa_avx512_core_amx;
}

bool IsIntel() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return false;
  return b == signature_INTEL_ebx && d == signature_INTEL_edx &&
         c == signature_INTEL_ecx;
}

// c [m, n] = a b (+ c), row-major f32.
void MultiplyF32(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k,
                 const float* a, int64_t lda, const float* b, int64_t ldb,
                 bool accumulate, float* c, int64_t ldc) {
  omp_set_num_threads(1);  // For this thread; more would change the bits.
  const dnnl_status_t status =
      dnnl_sgemm(trans_a, trans_b, m, n, k, 1.0f, a, lda, b, ldb,
                 accumulate ? 1.0f : 0.0f, c, ldc);
  CHECK_EQ(status, dnnl_success);
}

}  // namespace

bool HasBf16Products() {
  return HasAmxBf16() || (HasAvx512() && __builtin_cpu_supports("avx512bf16"));
}

ProductKind BestBf16Products() {
  if (HasAmxBf16() || (HasBf16Products() && !IsIntel())) {
    return ProductKind::kBf16Native;
  }
  return ProductKind::kBf16Rounded;
}

Products::Operand Products::Convert(const float* x, int64_t rows,
                                    int64_t columns, Scratch<uint16_t>& bf16,
                                    Scratch<float>& rounded) {
  if (kind_ == ProductKind::kF32) return {x, columns};
  const int64_t n = rows * columns;
  const int64_t tasks = (n + kElementsATask - 1) / kElementsATask;
  const bool native = kind_ == ProductKind::kBf16Native;
  uint16_t* const narrow = native ? bf16.Get(n) : nullptr;
  float* const wide = native ? nullptr : rounded.Get(n);
  pool_.ParallelFor(tasks, [&](int64_t task, int) {
    const int64_t begin = task * kElementsATask;
    const int64_t count = std::min(kElementsATask, n - begin);
    if (native) {
      kernels_.to_bf16(count, x + begin, narrow + begin);
    } else {
      kernels_.round_to_bf16(count, x + begin, wide + begin);
    }
  });
  if (native) return {narrow, columns};
  return {wide, columns};
}

Products::Operand Products::WeightOperand(const float* w, int64_t rows,
                                          int64_t columns) {
  if (kind_ == ProductKind::kF32) return {w, columns};
  Weight& weight = weights_[w];
  if (weight.epoch != epoch_) {
    weight.epoch = epoch_;
    return Convert(w, rows, columns, weight.bf16, weight.rounded);
  }
  if (kind_ == ProductKind::kBf16Native) {
    return {weight.bf16.Get(rows * columns), columns};
  }
  return {weight.rounded.Get(rows * columns), columns};
}

Products::Operand Products::At(const Operand& a, int64_t row,
                               int64_t column) const {
  const int64_t element_bytes = kind_ == ProductKind::kBf16Native ? 2 : 4;
  Operand part = a;
  part.data = static_cast<const char*>(a.data) +
              (row * a.row_step() + column * a.column_step()) * element_bytes;
  return part;
}

void Products::Prepare(const OutputTiles& tiles, const MatmulShape& shape) {
  int64_t scratch_bytes = 1;
  MatmulShape tile = shape;
  for (const int64_t i : {int64_t{0}, tiles.rows.count - 1}) {
    for (const int64_t j : {int64_t{0}, tiles.columns.count - 1}) {
      tile.m = tiles.rows.length(i);
      tile.n = tiles.columns.length(j);
      matmul_.Prepare(tile);
      scratch_bytes = std::max(scratch_bytes, matmul_.ScratchBytes(tile));
    }
  }
  for (Scratch<char>& scratch : thread_scratch_) scratch.Get(scratch_bytes);
}

void Products::Multiply(const OutputTiles& tiles, int64_t k, const Operand& a,
                        const Operand& b, bool accumulate, float* c,
                        int64_t ldc) {
  const bool native = kind_ == ProductKind::kBf16Native;
  const MatmulShape shape{.m = 0,
                          .n = 0,
                          .k = k,
                          .a_row = a.row_step(),
                          .a_column = a.column_step(),
                          .b_row = b.row_step(),
                          .b_column = b.column_step(),
                          .c_row = ldc,
                          .accumulate = accumulate};
  if (native) Prepare(tiles, shape);
  pool_.ParallelFor(tiles.count(), [&](int64_t index, int thread) {
    const int64_t i = index / tiles.columns.count;
    const int64_t j = index % tiles.columns.count;
    const int64_t row = tiles.rows.begin(i), column = tiles.columns.begin(j);
    const int64_t m = tiles.rows.length(i), n = tiles.columns.length(j);
    const Operand left = At(a, row, 0), right = At(b, 0, column);
    float* const out = c + row * ldc + column;
    if (native) {
      MatmulShape tile = shape;
      tile.m = m;
      tile.n = n;
      matmul_.Multiply(tile, left.data, right.data, out,
                       thread_scratch_[thread].Get(1));
      return;
    }
    MultiplyF32(left.is_transposed ? 'T' : 'N', right.is_transposed ? 'T' : 'N',
                m, n, k, static_cast<const float*>(left.data), left.stride,
                static_cast<const float*>(right.data), right.stride, accumulate,
                out, ldc);
  });
}

void Products::Linear(int64_t m, int64_t n, int64_t k, const float* x,
                      const float* w, float* y) {
  const Operand a = Convert(x, m, k, bf16_[0], rounded_[0]);
  Operand b = WeightOperand(w, n, k);
  b.is_transposed = true;
  Multiply(CutOutput(m, n, kLinearRowsMax, kLinearColumnsMin), k, a, b, false,
           y, n);
}

void Products::LinearBackwardInput(int64_t m, int64_t n, int64_t k,
                                   const float* dy, const float* w, float* dx) {
  const Operand a = Convert(dy, m, n, bf16_[0], rounded_[0]);
  const Operand b = WeightOperand(w, n, k);
  Multiply(CutOutput(m, k, kLinearRowsMax, kLinearColumnsMin), n, a, b, false,
           dx, k);
}

void Products::LinearBackwardWeight(int64_t m, int64_t n, int64_t k,
                                    const float* dy, const float* x, float* dw,
                                    bool accumulate) {
  Operand a = Convert(dy, m, n, bf16_[0], rounded_[0]);
  a.is_transposed = true;
  const Operand b = Convert(x, m, k, bf16_[1], rounded_[1]);
  Multiply(CutWeight(n, k, kWeightTileMin, kWeightTileMax), m, a, b, accumulate,
           dw, k);
}

}  // namespace atl::engine
