// The MLPs without experts: kLlama's is down(silu(gate(x)) up(x)), kGpt2's is
// c_proj(gelu(c_fc(x))). With tp a rank has F of the inner channels: it takes
// whole rows and returns its part of a sum.

#pragma once

#include <cstdint>
#include <memory>

#include "worker/engine/model/mlp.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/model/unit_slice.h"

namespace atl::engine {

// Makes the MLP of layer `layer`. Instantiated for float and double.
template <typename T>
std::unique_ptr<Mlp<T>> MakeDenseMlp(const ModelConfig& config,
                                     const ParameterLayout& layout,
                                     const UnitSlice& slice, int64_t layer,
                                     Keep keep);

}  // namespace atl::engine
