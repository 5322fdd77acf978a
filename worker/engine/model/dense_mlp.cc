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
class DenseMlp final : public Mlp<T> {
 public:
  DenseMlp(const ModelConfig& config, const ParameterLayout& layout,
           const UnitSlice& slice, int64_t layer, Keep keep)
      : gated_(!config.is_gpt2()),
        keep_(keep),
        inner_(config.intermediate_size / slice.tp_size) {
    up_.in = down_.out = config.hidden_size;
    up_.out = gated_ ? 2 * inner_ : inner_;
    down_.in = inner_;
    if (gated_) {
      const std::string prefix = absl::StrCat("model.layers.", layer, ".mlp.");
      up_.weight = OffsetInUnit(layout, prefix + "gate_proj.weight");
      down_.weight = OffsetInUnit(layout, prefix + "down_proj.weight");
      return;
    }
    const std::string prefix = absl::StrCat("transformer.h.", layer, ".mlp.");
    up_.weight = OffsetInUnit(layout, prefix + "c_fc.weight");
    up_.bias = OffsetInUnit(layout, prefix + "c_fc.bias");
    down_.weight = OffsetInUnit(layout, prefix + "c_proj.weight");
    down_.bias = OffsetInUnit(layout, prefix + "c_proj.bias");
    up_.input_major = down_.input_major = true;
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
    if (!gated_) {
      work.ops.AddBias(rows, inner_, parameters + up_.bias, state.up);
    }
    Activate(work, rows, state);
    ForwardLinear(work, down_, parameters, rows,
                  static_cast<const T*>(state.activated), delta);
  }

  void Backward(Workspace<T>& work, const T* parameters, int64_t rows,
                const T* x, Arena& saved, const T* dout, const RouterTotals<T>&,
                T* dx, T* gradients, bool accumulate) const override {
    const State state = Open(work, rows, saved);
    T* const dactivated = work.part_gradient.data;
    if (keep_ == Keep::kProducts) Activate(work, rows, state);
    BackwardLinear(work, down_, parameters, rows,
                   static_cast<const T*>(state.activated), dout, dactivated,
                   gradients, accumulate);
    if (gated_) {
      work.ops.SwiGluBackward(rows, inner_, state.up, dactivated, state.up);
    } else {
      work.ops.GeluBackward(rows * inner_, state.up, dactivated, state.up);
    }
    BackwardLinear(work, up_, parameters, rows, x,
                   static_cast<const T*>(state.up), dx, gradients, accumulate);
  }

 private:
  struct State {
    // [R, 2 F] or [R, F] with its bias; backward overwrites it with the
    // gradient.
    T* up;
    T* activated;  // [R, F], the workspace's if it is not kept
  };
  State Take(int64_t rows, Arena& saved) const {
    State state;
    state.up = saved.Take<T>(rows * up_.out);
    if (keep_ == Keep::kAll) state.activated = saved.Take<T>(rows * inner_);
    return state;
  }
  State Open(Workspace<T>& work, int64_t rows, Arena& saved) const {
    State state = Take(rows, saved);
    if (keep_ == Keep::kProducts) state.activated = work.activated;
    return state;
  }
  void Activate(Workspace<T>& work, int64_t rows, const State& state) const {
    if (gated_) {
      work.ops.SwiGlu(rows, inner_, state.up, state.activated);
    } else {
      work.ops.Gelu(rows * inner_, state.up, state.activated);
    }
  }

  const bool gated_;  // SwiGLU over gate and up, adjacent; otherwise GELU.
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
  return std::make_unique<DenseMlp<T>>(config, layout, slice, layer, keep);
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
