// The models, methods and published figures of utilization.cc.
//
// Pure. Thread-safe.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/benchmarks/utilization_simulator.h"
#include "worker/planner/forecast.h"

namespace atl::benchmarks {

// Target shares of computing time.
inline constexpr std::array<double, 5> kTargets = {0.5, 0.8, 0.9, 0.95, 0.99};

// A model of arXiv 2501.18512, Table 4: layers and seconds of a step.
struct SimulatedModel {
  const char* name;
  int64_t element_count;
  int64_t layer_count;
  double step_seconds;
};
absl::Span<const SimulatedModel> SimulatedModels();

// A row of that table: gigabits a second for each of kTargets. The figures lie
// on a grid with a factor of 10^(4/49) = 1.207 between points (0.1, ... 184.2,
// 222.3 ...). Each is the last point below the target, so the least sufficient
// bandwidth is up to that factor higher.
struct PublishedMethod {
  const char* name;
  double bits_an_element;
  int64_t inner_step_count;
  int64_t layers_a_fragment;  // 0: all.
  int64_t overlap_step_count;
  std::array<std::array<double, 5>, 3> gigabits;  // A model of SimulatedModels.
};
absl::Span<const PublishedMethod> PublishedMethods();

Reduction ComputeReduction(const PublishedMethod& method,
                           const SimulatedModel& model);

// One of ours: H = 100 and the codecs of base/codec.
struct OurMethod {
  const char* name;
  int64_t layers_a_fragment;  // 0: all.
  int64_t overlap_step_count;
  codec::CodecId up_codec, down_codec;
};
absl::Span<const OurMethod> OurMethods();

worker::planner::Exchange MakeExchange(const OurMethod& method,
                                       const SimulatedModel& model);

}  // namespace atl::benchmarks
