// The one definition of a reduction over ranks.
//
// Pure. Thread-safe. No allocation.
//
//   n     inputs, one a rank, in the order of ranks
//   R(b, e) = R(b, m) + R(m, e),  m = b + the largest power of two below e - b
//   R(b, b + 1) = input b
//   out   = R(0, n), each element by itself
//
// So (a + b) + c, and (a + b) + (c + d): neighbours first. + is the sum in the
// type, or the maximum, where a NaN wins. bf16 is widened to f32, summed in
// f32, and rounded once, to nearest, ties to even. Each element is independent,
// so bits do not depend on how a buffer is cut.

#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "worker/collective/call.h"

namespace atl::collective {

// out[i] = R(0, n) of element i for i in [0, count). `out` is one of `inputs`,
// or overlaps none. `type` is not kBytes; inputs.size() >= 1.
void ReduceInputs(DataType type, Reduction reduction,
                  absl::Span<const void* const> inputs, int64_t count,
                  void* out);

}  // namespace atl::collective
