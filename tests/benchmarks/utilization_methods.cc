#include "tests/benchmarks/utilization_methods.h"

#include "worker/planner/preset.h"

namespace atl::benchmarks {
namespace {

using codec::CodecId;

constexpr int64_t kInnerStepCount = 100;

}  // namespace

absl::Span<const SimulatedModel> SimulatedModels() {
  static constexpr SimulatedModel kModels[] = {
      {"1B", 1000000000, 24, 0.1},
      {"10B", 10000000000, 48, 0.8},
      {"100B", 100000000000, 108, 4.9},
  };
  return kModels;
}

absl::Span<const PublishedMethod> PublishedMethods() {
  static constexpr PublishedMethod kMethods[] = {
      {"data_parallel",
       16,
       1,
       0,
       0,
       {{{86.8, 152.6, 184.2, 222.3, 569.0},
         {104.8, 222.3, 222.3, 268.3, 471.5},
         {184.2, 323.8, 390.7, 390.7, 471.5}}}},
      {"diloco",
       16,
       100,
       0,
       0,
       {{{1.4, 6.2, 13.3, 23.3, 86.8},
         {1.7, 7.5, 16.0, 33.9, 104.8},
         {3.0, 11.0, 23.3, 49.4, 184.2}}}},
      {"streaming",
       16,
       100,
       3,
       0,
       {{{1.4, 5.2, 9.1, 16.0, 28.1},
         {1.7, 5.2, 9.1, 13.3, 19.3},
         {2.4, 6.2, 9.1, 11.0, 19.3}}}},
      {"streaming_overlap",
       16,
       100,
       3,
       1,
       {{{1.4, 4.3, 6.2, 9.1, 11.0},
         {1.7, 3.6, 5.2, 6.2, 7.5},
         {1.7, 3.6, 4.3, 5.2, 5.2}}}},
      {"streaming_overlap_fp4",
       4,
       100,
       3,
       1,
       {{{0.4, 0.9, 1.7, 2.0, 3.0},
         {0.4, 0.9, 1.4, 1.4, 1.7},
         {0.5, 0.9, 1.1, 1.1, 1.4}}}},
  };
  return kMethods;
}

Reduction ComputeReduction(const PublishedMethod& method,
                           const SimulatedModel& model) {
  Reduction reduction;
  reduction.layer_count = model.layer_count;
  reduction.layer_bytes = static_cast<double>(model.element_count) *
                          method.bits_an_element / 8 /
                          static_cast<double>(model.layer_count);
  reduction.step_seconds = model.step_seconds;
  reduction.inner_step_count = method.inner_step_count;
  if (method.layers_a_fragment > 0) {
    reduction.fragment_count = model.layer_count / method.layers_a_fragment;
  }
  reduction.overlap_step_count = method.overlap_step_count;
  return reduction;
}

absl::Span<const OurMethod> OurMethods() {
  static constexpr OurMethod kMethods[] = {
      {"diloco_f32", 0, 0, CodecId::kF32, CodecId::kF32},
      {"diloco_int8_bf16", 0, 0, CodecId::kInt8, CodecId::kBf16},
      {"streaming_e3m0", 3, 5, CodecId::kE3m0, CodecId::kE3m0},
      {"streaming_e3m0_by_layer", 1, 5, CodecId::kE3m0, CodecId::kE3m0},
      {"streaming_e3m0_by_layer_10", 1, 10, CodecId::kE3m0, CodecId::kE3m0},
      {"eager_e3m0", 3, 99, CodecId::kE3m0, CodecId::kE3m0},
      {"sparse_top_k_two_bit", 0, 0, CodecId::kTopK, CodecId::kTwoBit},
      {"streaming_top_k_two_bit", 3, 5, CodecId::kTopK, CodecId::kTwoBit},
  };
  return kMethods;
}

worker::planner::Exchange MakeExchange(const OurMethod& method,
                                       const SimulatedModel& model) {
  worker::planner::Exchange exchange;
  exchange.inner_step_count = kInnerStepCount;
  exchange.streaming = method.layers_a_fragment > 0;
  exchange.overlap_step_count = method.overlap_step_count;
  exchange.up_codec = method.up_codec;
  exchange.down_codec = method.down_codec;
  const int64_t fragment_count =
      exchange.streaming ? model.layer_count / method.layers_a_fragment : 1;
  exchange.fragment_elements =
      worker::planner::EvenFragments(model.element_count, fragment_count);
  return exchange;
}

}  // namespace atl::benchmarks
