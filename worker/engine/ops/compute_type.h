// The number format of matrix products.

#pragma once

namespace atl::engine {

// The operands of matrix products. All else is f32 unless stated otherwise.
enum class ComputeType {
  kF32,
  kBf16,  // Operands rounded to bfloat16, products summed in f32.
};

}  // namespace atl::engine
