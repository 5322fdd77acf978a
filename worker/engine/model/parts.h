// Norms and linear maps of a unit: offsets of their parameters, and both
// passes. `parameters` and `gradients` are a unit's span. A gradient is
// written, or added if `accumulate`. Thread-compatible.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "worker/engine/model/mlp.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/model/workspace.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {

// Offset of the parameter `name`, which must exist, in its unit's span.
int64_t OffsetInUnit(const ParameterLayout& layout, const std::string& name);

// --- Norms -------------------------------------------------------------------

// RMSNorm, or LayerNorm if there is a bias.
struct NormMap {
  int64_t gain = 0;   // Offsets in the unit's span.
  int64_t bias = -1;  // -1: none.
  int slot = 0;       // Number of the unit's norm: 0 or 1.
};

// The values that the backward pass needs besides the norm's input.
template <typename T>
struct NormState {
  T* normed = nullptr;  // [R, C], the output
  T* rstd = nullptr;    // [R]
  T* mean = nullptr;    // [R], LayerNorm's
};

// Keep::kProducts leaves `normed` null.
template <typename T>
NormState<T> TakeNorm(const ModelConfig& config, int64_t rows, Keep keep,
                      Arena& arena);

template <typename T>
void UseNormed(Workspace<T>& work, NormState<T>& state) {
  if (state.normed == nullptr) state.normed = work.normed;
}

template <typename T>
void ForwardNorm(Workspace<T>& work, const NormMap& map, const T* parameters,
                 int64_t rows, const T* x, NormState<T>& state);

// sum = x + work.delta (+ `bias`, if not null), then norms the sum.
template <typename T>
void ForwardAddNorm(Workspace<T>& work, const NormMap& map, const T* parameters,
                    int64_t rows, const T* x, const T* bias, T* sum,
                    NormState<T>& state);

// Computes the gradient of x from `dy`, and writes it to dx or adds it if
// `add_to_dx`. With tp the gradients of gain and bias cover this rank's rows
// alone until SumNormGradients.
template <typename T>
void BackwardNorm(Workspace<T>& work, const NormMap& map, const T* parameters,
                  int64_t rows, const T* x, const NormState<T>& state,
                  const T* dy, T* dx, bool add_to_dx, T* gradients,
                  bool accumulate);

// Sums the gradients of gains and biases over tp ranks and puts them in place.
// Call it once per unit, after BackwardNorm of all its norms; `maps` has them
// in the order of their slots. Does nothing without tp.
template <typename T>
void SumNormGradients(Workspace<T>& work, std::initializer_list<NormMap> maps,
                      T* gradients, bool accumulate);

// --- Linear maps -------------------------------------------------------------

struct LinearMap {
  int64_t in = 0;
  int64_t out = 0;
  int64_t weight = 0;        // [out, in], or [in, out] if input_major.
  int64_t bias = -1;         // [out]; -1: none.
  bool input_major = false;  // GPT-2's order.
};

// y [R, out] from x [R, in], without the bias.
template <typename T>
void ForwardLinear(Workspace<T>& work, const LinearMap& map,
                   const T* parameters, int64_t rows, const T* x, T* y);

// Computes the gradients of weight and bias, then dx unless it is null.
template <typename T>
void BackwardLinear(Workspace<T>& work, const LinearMap& map,
                    const T* parameters, int64_t rows, const T* x, const T* dy,
                    T* dx, T* gradients, bool accumulate);

template <typename T>
const T* FindBias(const LinearMap& map, const T* parameters) {
  return map.bias < 0 ? nullptr : parameters + map.bias;
}

}  // namespace atl::engine
