// Outer optimizers: what turns version v of a fragment and its merged outer
// gradient into version v + 1.
//
// Pure. Immutable after they are made, so thread-safe. One file a choice.
//
//   g      merged outer gradient, f32: old minus new; every rule subtracts it
//   theta  master parameters, f32
//   m, v   state, f32, of the same shape as theta; how many there are and what
//          they start from is the optimizer's
//
// Every rule but Delayed Nesterov takes the same step whatever the version.
// A rule is element-wise: any cut of a fragment into tiles gives the same bits.

#ifndef SERVER_CORE_OUTER_OPTIMIZER_OUTER_OPTIMIZER_H_
#define SERVER_CORE_OUTER_OPTIMIZER_OUTER_OPTIMIZER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"

namespace atl::server {

// A tile that takes a step. The arrays do not overlap, but for what is read and
// written, which may be one array.
struct OuterTile {
  int64_t count = 0;                // Elements.
  int64_t version = 0;              // v: steps taken before this one.
  const float* gradient = nullptr;  // g, [count].
  float* theta = nullptr;           // [count], read and written.
  float* state[2] = {};             // m, v: [count] each, read and written.
  // Where to read them, if not where they are written.
  const float* old_theta = nullptr;
  const float* old_state[2] = {};
};

// The arithmetic, given by the caller: //server/kernels, or the plain
// definitions in a test. The functions and their names are those of
// server/kernels/outer_steps.h.
class OuterKernels {
 public:
  // Constants of the adaptive rules, each rounded once from double.
  struct Adaptive {
    float lr;
    float beta1;
    float one_minus_beta1;
    float beta2;
    float one_minus_beta2;
    float tau;
  };

  // Those of Delayed Nesterov, the same.
  struct Delayed {
    float lr;
    float momentum;
    float buffer_count;
    float carried;
    float flushed;
  };

  virtual ~OuterKernels() = default;
  virtual void Sgd(float lr, const OuterTile& tile) const = 0;
  virtual void Momentum(float lr, float momentum,
                        const OuterTile& tile) const = 0;
  virtual void Nesterov(float lr, float momentum,
                        const OuterTile& tile) const = 0;
  virtual void FedAdam(const Adaptive& constants,
                       const OuterTile& tile) const = 0;
  virtual void FedYogi(const Adaptive& constants,
                       const OuterTile& tile) const = 0;
  virtual void FedAdagrad(const Adaptive& constants,
                          const OuterTile& tile) const = 0;
  virtual void DelayedNesterov(const Delayed& constants, bool flush,
                               const OuterTile& tile) const = 0;
};

class OuterOptimizer {
 public:
  // State arrays of any optimizer, at most.
  static constexpr int kMaxStateCount = 2;

  virtual ~OuterOptimizer() = default;

  // For people and logs: "nesterov".
  virtual absl::string_view name() const = 0;
  // State arrays, 0 to kMaxStateCount.
  virtual int state_count() const = 0;
  // What every element of state array `i` is at version 0.
  // Requires: 0 <= i < state_count().
  virtual float initial_state(int i) const = 0;
  // Takes one step on `tile`, whose first state_count() states are given.
  virtual void Step(const OuterKernels& kernels,
                    const OuterTile& tile) const = 0;
};

// The optimizer that `spec` names.
//
// INVALID_ARGUMENT: the kind is not known, or a constant that it reads is out
// of its range or not finite; the message names the field.
absl::StatusOr<std::unique_ptr<OuterOptimizer>> MakeOuterOptimizer(
    const v1::OuterSpec& spec);

}  // namespace atl::server

#endif  // SERVER_CORE_OUTER_OPTIMIZER_OUTER_OPTIMIZER_H_
