// The mixture of experts of a kMixtral: for each row the sum over its K experts
// of the router's weight times the expert's down(silu(gate(x)) up(x)).
// model_config.h says what the router's loss and an expert's capacity are.

#ifndef WORKER_ENGINE_MODEL_MIXTURE_H_
#define WORKER_ENGINE_MODEL_MIXTURE_H_

#include <cstdint>
#include <memory>

#include "worker/engine/model/mlp.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"

namespace atl::engine {

// That of layer `layer`. Instantiated for float and double.
template <typename T>
std::unique_ptr<Mlp<T>> MakeMixture(const ModelConfig& config,
                                    const ParameterLayout& layout,
                                    int64_t layer);

}  // namespace atl::engine

#endif  // WORKER_ENGINE_MODEL_MIXTURE_H_
