// Outer optimizers: version v of a fragment and its merged outer gradient
// become version v + 1. Pure. Immutable, so thread-safe.
//
//   g      merged outer gradient, f32: old minus new; every rule subtracts it
//   theta  master parameters, f32
//   m, v   optimizer state, f32, shaped as theta; the optimizer decides how
//          many there are and their initial values
//
// Only Delayed Nesterov's step depends on the version. A rule is element-wise:
// any cut of a fragment into tiles gives the same bits.
//
// A buffer (TENSOR_CLASS_BUFFER) has no rule: theta = theta - g, which is the
// mean of the islands' values, because their outer gradients were taken from
// theta. Its state keeps the initial values.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"
#include "base/layout/layout.h"

namespace atl::server {

// A tile to step. Arrays are disjoint, or updated in place.
struct OuterTile {
  int64_t count = 0;                // Elements.
  int64_t version = 0;              // v: steps taken before this one.
  const float* gradient = nullptr;  // g, [count].
  float* theta = nullptr;           // [count], read and written.
  float* state[2] = {};             // m, v: [count] each, read and written.
  // Where to read theta and state; null: where they are written.
  const float* old_theta = nullptr;
  const float* old_state[2] = {};
};

class OuterOptimizer {
 public:
  // Most state arrays of any optimizer.
  static constexpr int kMaxStateCount = 2;

  virtual ~OuterOptimizer() = default;

  // For people and logs: "nesterov".
  virtual absl::string_view name() const = 0;
  // 0 to kMaxStateCount.
  virtual int state_count() const = 0;
  // The value of every element of state array `i` at version 0.
  // Requires: 0 <= i < state_count().
  virtual float initial_state(int i) const = 0;
  // Steps `tile`, whose first state_count() states are given.
  virtual void Step(const OuterTile& tile) const = 0;
};

// INVALID_ARGUMENT: the kind is unknown, or a constant that it reads is out of
// range or not finite; the message names the field.
absl::StatusOr<std::unique_ptr<OuterOptimizer>> MakeOuterOptimizer(
    const v1::OuterSpec& spec);

// Steps `tile`, the elements of `blocks` of `fragment`: parameters with
// `optimizer`, buffers without.
void StepBlocks(const OuterOptimizer& optimizer, const RunLayout& layout,
                int32_t fragment, IndexRange blocks, const OuterTile& tile);

}  // namespace atl::server
