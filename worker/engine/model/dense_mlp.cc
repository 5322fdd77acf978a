#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/engine/model/mlp.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/model/parts.h"
#include "worker/engine/model/unit_slice.h"
#include "worker/engine/model/workspace.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {
namespace {

template <typename T>
class GatedMlp final : public Mlp<T> {
 public:
  GatedMlp(const ModelConfig& config, const ParameterLayout& layout,
           const UnitSlice& slice, int64_t layer, Keep keep)
      : keep_(keep), inner_(config.intermediate_size / slice.tp_size) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".mlp.");
    gate_up_ = {.in = config.hidden_size,
                .out = 2 * inner_,
                .weight = OffsetInUnit(layout, prefix + "gate_proj.weight")};
    down_ = {.in = inner_,
             .out = config.hidden_size,
             .weight = OffsetInUnit(layout, prefix + "down_proj.weight")};
  }

  void TakeSaved(int64_t rows, Arena& saved) const override {
    Take(rows, saved);
  }
  const T* bias(const T*) const override { return nullptr; }

  void Forward(Workspace<T>& work, const T* parameters, int64_t rows,
               int64_t, const T* x, Arena& saved, T* delta,
               const RouterTotals<T>&) const override {
    const State state = Open(work, rows, saved);
    ForwardLinear(work, gate_up_, parameters, rows, x, state.gate_up);
    work.ops.SwiGlu(rows, inner_, state.gate_up, state.swiglu);
    ForwardLinear(work, down_, parameters, rows,
                  static_cast<const T*>(state.swiglu), delta);
  }

  void Backward(Workspace<T>& work, const T* parameters, int64_t rows,
                const T* x, Arena& saved, const T* dout, const RouterTotals<T>&,
                T* dx, T* gradients, bool accumulate) const override {
    const State state = Open(work, rows, saved);
    T* const dswiglu = work.part_gradient.data;
    if (keep_ == Keep::kProducts) {
      work.ops.SwiGlu(rows, inner_, state.gate_up, state.swiglu);
    }
    BackwardLinear(work, down_, parameters, rows,
                   static_cast<const T*>(state.swiglu), dout, dswiglu,
                   gradients, accumulate);
    work.ops.SwiGluBackward(rows, inner_, state.gate_up, dswiglu,
                            state.gate_up);
    BackwardLinear(work, gate_up_, parameters, rows, x,
                   static_cast<const T*>(state.gate_up), dx, gradients,
                   accumulate);
  }

 private:
  struct State {
    T* gate_up;  // [R, 2 F]; backward overwrites it with the gradient
    T* swiglu;   // [R, F], the workspace's if it is not kept
  };
  State Take(int64_t rows, Arena& saved) const {
    State state;
    state.gate_up = saved.Take<T>(rows * 2 * inner_);
    if (keep_ == Keep::kAll) state.swiglu = saved.Take<T>(rows * inner_);
    return state;
  }
  State Open(Workspace<T>& work, int64_t rows, Arena& saved) const {
    State state = Take(rows, saved);
    if (keep_ == Keep::kProducts) state.swiglu = work.activated;
    return state;
  }

  const Keep keep_;
  const int64_t inner_;
  LinearMap gate_up_, down_;
};

template <typename T>
class GeluMlp final : public Mlp<T> {
 public:
  GeluMlp(const ModelConfig& config, const ParameterLayout& layout,
          const UnitSlice& slice, int64_t layer, Keep keep)
      : keep_(keep), inner_(config.intermediate_size / slice.tp_size) {
    const std::string prefix = absl::StrCat("transformer.h.", layer, ".mlp.");
    up_ = {.in = config.hidden_size,
           .out = inner_,
           .weight = OffsetInUnit(layout, prefix + "c_fc.weight"),
           .bias = OffsetInUnit(layout, prefix + "c_fc.bias"),
           .input_major = true};
    down_ = {.in = inner_,
             .out = config.hidden_size,
             .weight = OffsetInUnit(layout, prefix + "c_proj.weight"),
             .bias = OffsetInUnit(layout, prefix + "c_proj.bias"),
             .input_major = true};
  }

  void TakeSaved(int64_t rows, Arena& saved) const override {
    Take(rows, saved);
  }
  const T* bias(const T* parameters) const override {
    return FindBias(down_, parameters);
  }

  void Forward(Workspace<T>& work, const T* parameters, int64_t rows,
               int64_t, const T* x, Arena& saved, T* delta,
               const RouterTotals<T>&) const override {
    const State state = Open(work, rows, saved);
    ForwardLinear(work, up_, parameters, rows, x, state.up);
    work.ops.AddBias(rows, inner_, parameters + up_.bias, state.up);
    work.ops.Gelu(rows * inner_, state.up, state.gelu);
    ForwardLinear(work, down_, parameters, rows,
                  static_cast<const T*>(state.gelu), delta);
  }

  void Backward(Workspace<T>& work, const T* parameters, int64_t rows,
                const T* x, Arena& saved, const T* dout, const RouterTotals<T>&,
                T* dx, T* gradients, bool accumulate) const override {
    const State state = Open(work, rows, saved);
    T* const dgelu = work.part_gradient.data;
    if (keep_ == Keep::kProducts) {
      work.ops.Gelu(rows * inner_, state.up, state.gelu);
    }
    BackwardLinear(work, down_, parameters, rows,
                   static_cast<const T*>(state.gelu), dout, dgelu, gradients,
                   accumulate);
    work.ops.GeluBackward(rows * inner_, state.up, dgelu, state.up);
    BackwardLinear(work, up_, parameters, rows, x,
                   static_cast<const T*>(state.up), dx, gradients, accumulate);
  }

 private:
  struct State {
    T* up;    // [R, F], with its bias; backward overwrites it with the gradient
    T* gelu;  // [R, F], the workspace's if it is not kept
  };
  State Take(int64_t rows, Arena& saved) const {
    State state;
    state.up = saved.Take<T>(rows * inner_);
    if (keep_ == Keep::kAll) state.gelu = saved.Take<T>(rows * inner_);
    return state;
  }
  State Open(Workspace<T>& work, int64_t rows, Arena& saved) const {
    State state = Take(rows, saved);
    if (keep_ == Keep::kProducts) state.gelu = work.activated;
    return state;
  }

  const Keep keep_;
  const int64_t inner_;
  LinearMap up_, down_;
};

}  // namespace

template <typename T>
std::unique_ptr<Mlp<T>> MakeDenseMlp(const ModelConfig& config,
                                     const ParameterLayout& layout,
                                     const UnitSlice& slice, int64_t layer,
                                     Keep keep) {
  if (config.is_gpt2()) {
    return std::make_unique<GeluMlp<T>>(config, layout, slice, layer, keep);
  }
  return std::make_unique<GatedMlp<T>>(config, layout, slice, layer, keep);
}

template std::unique_ptr<Mlp<float>> MakeDenseMlp(const ModelConfig&,
                                                  const ParameterLayout&,
                                                  const UnitSlice&, int64_t,
                                                  Keep);
template std::unique_ptr<Mlp<double>> MakeDenseMlp(const ModelConfig&,
                                                   const ParameterLayout&,
                                                   const UnitSlice&, int64_t,
                                                   Keep);

}  // namespace atl::engine
