// The kernel table of one compilation. Only kernels_*.cc include this file.

#pragma once

#include "worker/engine/ops/cpu/attention-inl.h"
#include "worker/engine/ops/cpu/attention_block-inl.h"
#include "worker/engine/ops/cpu/kernels-inl.h"
#include "worker/engine/ops/cpu/kernels.h"

namespace atl::engine::ATL_ENGINE_ISA {

inline constexpr Kernels MakeKernels(const char* name) {
  return Kernels{
      .name = name,
      .add_rms_norm = AddRmsNorm,
      .rms_norm_backward = RmsNormBackward,
      .layer_norm = LayerNorm,
      .layer_norm_backward = LayerNormBackward,
      .add_row = AddRow,
      .rope = Rope,
      .attention = Attention,
      .attention_backward = AttentionBackward,
      .attend_block = AttendBlock,
      .attend_block_backward = AttendBlockBackward,
      .swiglu = SwiGlu,
      .swiglu_backward = SwiGluBackward,
      .gelu = Gelu,
      .gelu_backward = GeluBackward,
      .softmax = Softmax,
      .cross_entropy = CrossEntropy,
      .cross_entropy_backward = CrossEntropyBackward,
      .max_of = FindLargest,
      .sum_exp = SumOfExp,
      .scaled_exp = ScaledExp,
      .add = AddTo,
      .axpy = Axpy,
      .scale = Scale,
      .fused_axpy = FusedAxpy,
      .dot = Dot,
      .sum = Sum,
      .sum_of_squares = SumOfSquares,
      .sgd = Sgd,
      .adamw = AdamW,
      .round_to_bf16 = RoundToBf16,
      .to_bf16 = ToBf16,
  };
}

}  // namespace atl::engine::ATL_ENGINE_ISA
