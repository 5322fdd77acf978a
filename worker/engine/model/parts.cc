#include "worker/engine/model/parts.h"

#include "base/status/check.h"
#include "worker/collective/call.h"
#include "worker/engine/model/exchange.h"

namespace atl::engine {

namespace {

// Returns where a norm's gradients wait for the sum over tp.
template <typename T>
T* SharedGradient(Workspace<T>& work, const NormMap& map) {
  const int64_t vectors = work.config.is_gpt2() ? 2 : 1;
  return work.norm_gradients + map.slot * vectors * work.config.hidden_size;
}

}  // namespace

int64_t OffsetInUnit(const ParameterLayout& layout, const std::string& name) {
  const ParameterSpec* spec = layout.Find(name);
  CHECK(spec != nullptr) << name;
  return spec->offset - layout.units[spec->unit].begin;
}

template <typename T>
NormState<T> TakeNorm(const ModelConfig& config, int64_t rows, Keep keep,
                      Arena& arena) {
  NormState<T> state;
  if (keep == Keep::kAll) {
    state.normed = arena.Take<T>(rows * config.hidden_size);
  }
  state.rstd = arena.Take<T>(rows);
  if (config.is_gpt2()) state.mean = arena.Take<T>(rows);
  return state;
}

template <typename T>
void ForwardNorm(Workspace<T>& work, const NormMap& map, const T* parameters,
                 int64_t rows, const T* x, NormState<T>& state) {
  const int64_t channels = work.config.hidden_size;
  const T eps = static_cast<T>(work.config.rms_norm_eps);
  const T* gain = parameters + map.gain;
  if (map.bias >= 0) {
    work.ops.LayerNorm(rows, channels, eps, x, gain, parameters + map.bias,
                       state.normed, state.mean, state.rstd);
  } else {
    work.ops.AddRmsNorm(rows, channels, eps, x, nullptr, gain, nullptr,
                        state.normed, state.rstd);
  }
}

template <typename T>
void ForwardAddNorm(Workspace<T>& work, const NormMap& map, const T* parameters,
                    int64_t rows, const T* x, const T* bias, T* sum,
                    NormState<T>& state) {
  const int64_t channels = work.config.hidden_size;
  if (map.bias >= 0 || bias != nullptr) {
    work.ops.AddRows(rows, channels, x, work.delta.data, bias, sum);
    ForwardNorm(work, map, parameters, rows, static_cast<const T*>(sum), state);
    return;
  }
  work.ops.AddRmsNorm(rows, channels, static_cast<T>(work.config.rms_norm_eps),
                      x, work.delta.data, parameters + map.gain, sum,
                      state.normed, state.rstd);
}

template <typename T>
void BackwardNorm(Workspace<T>& work, const NormMap& map, const T* parameters,
                  int64_t rows, const T* x, const NormState<T>& state,
                  const T* dy, T* dx, bool add_to_dx, T* gradients,
                  bool accumulate) {
  const int64_t channels = work.config.hidden_size;
  // Straight into place, unless the gradient is added or summed over tp.
  T* gain_out = gradients + map.gain;
  T* bias_out = gradients + map.bias;
  if (work.groups.tp != nullptr) {
    gain_out = SharedGradient(work, map);
    bias_out = gain_out + channels;
  } else if (accumulate) {
    gain_out = work.gain_gradient;
    bias_out = work.bias_gradient;
  }
  if (map.bias < 0) {
    work.ops.RmsNormBackward(rows, channels, dy, x, state.rstd,
                             parameters + map.gain, dx, gain_out, add_to_dx);
  } else {
    work.ops.LayerNormBackward(rows, channels, dy, x, state.mean, state.rstd,
                               parameters + map.gain, dx, gain_out, bias_out,
                               add_to_dx);
  }
  if (work.groups.tp != nullptr || !accumulate) return;
  if (map.bias >= 0) {
    work.ops.Axpy(channels, T(1), bias_out, gradients + map.bias);
  }
  work.ops.Axpy(channels, T(1), gain_out, gradients + map.gain);
}

template <typename T>
void SumNormGradients(Workspace<T>& work, std::initializer_list<NormMap> maps,
                      T* gradients, bool accumulate) {
  if (work.groups.tp == nullptr) return;
  const int64_t channels = work.config.hidden_size;
  const int64_t vectors =
      static_cast<int64_t>(maps.size()) * (work.config.is_gpt2() ? 2 : 1);
  ReduceOverTp(work, vectors * channels, work.norm_gradients,
               collective::Reduction::kSum);
  const auto put = [&](const T* from, T* to) {
    if (accumulate) {
      work.ops.Axpy(channels, T(1), from, to);
    } else {
      work.ops.CopyColumns(1, channels, from, channels, to, channels);
    }
  };
  for (const NormMap& map : maps) {
    const T* from = SharedGradient(work, map);
    put(from, gradients + map.gain);
    if (map.bias >= 0) put(from + channels, gradients + map.bias);
  }
}

template <typename T>
void ForwardLinear(Workspace<T>& work, const LinearMap& map,
                   const T* parameters, int64_t rows, const T* x, T* y) {
  const T* weight = parameters + map.weight;
  if (map.input_major) {
    // y = x w is the input gradient of an output-major map.
    work.ops.LinearBackwardInput(rows, map.in, map.out, x, weight, y);
  } else {
    work.ops.Linear(rows, map.out, map.in, x, weight, y);
  }
}

template <typename T>
void BackwardLinear(Workspace<T>& work, const LinearMap& map,
                    const T* parameters, int64_t rows, const T* x, const T* dy,
                    T* dx, T* gradients, bool accumulate) {
  const T* weight = parameters + map.weight;
  T* dweight = gradients + map.weight;
  if (map.bias >= 0) {
    work.ops.BiasBackward(rows, map.out, dy, gradients + map.bias, accumulate);
  }
  if (map.input_major) {
    work.ops.LinearBackwardWeight(rows, map.in, map.out, x, dy, dweight,
                                  accumulate);
    if (dx != nullptr) {
      work.ops.Linear(rows, map.in, map.out, dy, weight, dx);
    }
    return;
  }
  work.ops.LinearBackwardWeight(rows, map.out, map.in, dy, x, dweight,
                                accumulate);
  if (dx != nullptr) {
    work.ops.LinearBackwardInput(rows, map.out, map.in, dy, weight, dx);
  }
}

#define ATL_ENGINE_INSTANTIATE(T)                                              \
  template NormState<T> TakeNorm(const ModelConfig&, int64_t, Keep, Arena&);   \
  template void ForwardNorm(Workspace<T>&, const NormMap&, const T*, int64_t,  \
                            const T*, NormState<T>&);                          \
  template void ForwardAddNorm(Workspace<T>&, const NormMap&, const T*,        \
                               int64_t, const T*, const T*, T*,                \
                               NormState<T>&);                                 \
  template void BackwardNorm(Workspace<T>&, const NormMap&, const T*, int64_t, \
                             const T*, const NormState<T>&, const T*, T*,      \
                             bool, T*, bool);                                  \
  template void SumNormGradients(Workspace<T>&,                                \
                                 std::initializer_list<NormMap>, T*, bool);    \
  template void ForwardLinear(Workspace<T>&, const LinearMap&, const T*,       \
                              int64_t, const T*, T*);                          \
  template void BackwardLinear(Workspace<T>&, const LinearMap&, const T*,      \
                               int64_t, const T*, const T*, T*, T*, bool);
ATL_ENGINE_INSTANTIATE(float)
ATL_ENGINE_INSTANTIATE(double)
#undef ATL_ENGINE_INSTANTIATE

}  // namespace atl::engine
