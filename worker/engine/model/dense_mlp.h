// The MLPs without experts.
//
//   kLlama    down(silu(gate(x)) up(x))
//   kGpt2     c_proj(gelu(c_fc(x)))

#ifndef WORKER_ENGINE_MODEL_DENSE_MLP_H_
#define WORKER_ENGINE_MODEL_DENSE_MLP_H_

#include <cstdint>
#include <memory>

#include "worker/engine/model/mlp.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"

namespace atl::engine {

// That of layer `layer`. Instantiated for float and double.
template <typename T>
std::unique_ptr<Mlp<T>> MakeDenseMlp(const ModelConfig& config,
                                     const ParameterLayout& layout,
                                     int64_t layer);

}  // namespace atl::engine

#endif  // WORKER_ENGINE_MODEL_DENSE_MLP_H_
