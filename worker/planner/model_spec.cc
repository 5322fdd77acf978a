#include "worker/planner/model_spec.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/layout/external_model.h"
#include "base/layout/run_length.h"
#include "base/status/status_macros.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/optimizer/optimizer_options.h"
#include "worker/planner/balanced_fragments.h"

namespace atl::worker {
namespace {

v1::TensorClass ToTensorClass(engine::ParameterClass parameter_class) {
  switch (parameter_class) {
    case engine::ParameterClass::kEmbedding:
      return v1::TENSOR_CLASS_EMBEDDING;
    case engine::ParameterClass::kVector:
      return v1::TENSOR_CLASS_VECTOR;
    case engine::ParameterClass::kMatrix:
      break;
  }
  return v1::TENSOR_CLASS_MATRIX;
}

// Elements of each layer. The first one includes the embedding, the last one
// all that follows it.
std::vector<int64_t> LayerSizes(const engine::ParameterLayout& parameters,
                                int32_t layer_count) {
  std::vector<int64_t> sizes(layer_count, 0);
  for (const engine::ParameterSpec& parameter : parameters.parameters) {
    const int64_t layer =
        std::clamp<int64_t>(parameter.unit - 1, 0, layer_count - 1);
    sizes[layer] += parameter.element_count;
  }
  return sizes;
}

std::vector<int32_t> DealLayers(const engine::ParameterLayout& parameters,
                                int32_t layer_count, int32_t fragment_count,
                                FragmentAssignment assignment) {
  if (assignment == FragmentAssignment::kBalanced) {
    return BalancedFragments(LayerSizes(parameters, layer_count),
                             fragment_count);
  }
  std::vector<int32_t> fragments(layer_count);
  for (int32_t l = 0; l < layer_count; ++l) fragments[l] = l % fragment_count;
  return fragments;
}

absl::Status CheckLayout(const v1::Layout& layout,
                         const engine::ParameterLayout& parameters) {
  const auto differs = [](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the run's layout is not that of its model (", what,
        "): this island's program cannot train it; create the run with a "
        "layout made from its model, or upgrade"));
  };
  if (layout.tensors_size() != static_cast<int>(parameters.parameters.size())) {
    return differs(absl::StrCat(layout.tensors_size(), " tensors, not ",
                                parameters.parameters.size()));
  }
  for (int i = 0; i < layout.tensors_size(); ++i) {
    const v1::TensorSpec& tensor = layout.tensors(i);
    const engine::ParameterSpec& parameter = parameters.parameters[i];
    if (tensor.name() != parameter.name ||
        !std::equal(tensor.shape().begin(), tensor.shape().end(),
                    parameter.shape.begin(), parameter.shape.end())) {
      return differs(absl::StrCat("tensor ", i, " is ", tensor.name(),
                                  ", the model's is ", parameter.name));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<engine::ModelConfig> MakeModelConfig(
    const v1::ModelSpec& model) {
  engine::ModelConfig config;
  if (IsExternal(model)) {
    return absl::InvalidArgumentError(
        "the model is external (model.architecture \"external\"): only the "
        "trainer of its islands can compute with it");
  }
  if (model.architecture() == "gpt2") {
    config.architecture = engine::Architecture::kGpt2;
  } else if (model.architecture() == "mixtral") {
    config.architecture = engine::Architecture::kMixtral;
  } else if (model.architecture() != "llama") {
    return absl::InvalidArgumentError(
        absl::StrCat("model architecture \"", model.architecture(),
                     "\" is unknown; use \"llama\", \"gpt2\" or \"mixtral\""));
  }
  config.vocab_size = model.vocab_size();
  config.hidden_size = model.hidden_size();
  config.intermediate_size = model.intermediate_size();
  config.layer_count = model.layer_count();
  config.head_count = model.head_count();
  config.kv_head_count = model.kv_head_count();
  config.sequence_length_max = model.sequence_length();
  if (!config.is_gpt2()) config.rope_theta = model.rope_theta();
  config.rms_norm_eps = model.rms_norm_eps();
  config.tie_embeddings = model.tie_embeddings();
  config.expert_count = model.expert_count();
  config.experts_per_token = model.experts_per_token();
  config.router_loss_weight = model.router_loss_weight();
  config.expert_capacity_factor = model.expert_capacity_factor();
  RETURN_IF_ERROR(engine::ValidateModelConfig(config));
  return config;
}

absl::StatusOr<FragmentAssignment> ParseFragmentAssignment(
    absl::string_view name) {
  if (name == "strided") return FragmentAssignment::kStrided;
  if (name == "balanced") return FragmentAssignment::kBalanced;
  return absl::InvalidArgumentError(
      absl::StrCat("fragment assignment is \"", name,
                   "\", not \"strided\" or \"balanced\""));
}

int32_t CountFragments(int64_t layer_count, int64_t layers_a_fragment,
                       int32_t fragment_count) {
  if (layers_a_fragment <= 0) return std::max(1, fragment_count);
  int64_t count = (layer_count + layers_a_fragment - 1) / layers_a_fragment;
  if (fragment_count > 0) count = std::min<int64_t>(count, fragment_count);
  return static_cast<int32_t>(std::max<int64_t>(1, count));
}

absl::StatusOr<v1::Layout> BuildLayout(const v1::ModelSpec& model,
                                       int32_t fragment_count,
                                       FragmentAssignment assignment) {
  ASSIGN_OR_RETURN(const engine::ModelConfig config, MakeModelConfig(model));
  if (fragment_count < 1 || fragment_count > model.layer_count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("fragment_count ", fragment_count,
                     " must be at least 1 and at most the number of layers (",
                     model.layer_count(), ")"));
  }
  v1::Layout layout;
  layout.set_fragment_count(fragment_count);
  const engine::ParameterLayout parameters =
      engine::MakeParameterLayout(config);
  const int32_t layer_count = model.layer_count();
  const std::vector<int32_t> fragments =
      DealLayers(parameters, layer_count, fragment_count, assignment);
  for (const engine::ParameterSpec& parameter : parameters.parameters) {
    v1::TensorSpec* tensor = layout.add_tensors();
    tensor->set_name(parameter.name);
    for (const int64_t dimension : parameter.shape) {
      tensor->add_shape(dimension);
    }
    tensor->set_dtype(v1::DATA_TYPE_F32);
    tensor->set_tensor_class(ToTensorClass(parameter.parameter_class));
    // Unit 0 precedes the layers, the last unit follows them.
    const int64_t unit = parameter.unit;
    tensor->set_fragment(unit == 0            ? 0
                         : unit > layer_count ? fragment_count - 1
                                              : fragments[unit - 1]);
    tensor->mutable_init()->set_kind(parameter.init ==
                                             engine::ParameterInit::kNormal
                                         ? v1::INIT_KIND_NORMAL
                                         : v1::INIT_KIND_CONSTANT);
    tensor->mutable_init()->set_value(parameter.init_value);
  }
  return layout;
}

absl::StatusOr<engine::TrainerOptions> MakeTrainerOptions(
    const v1::RunSpec& spec, int thread_count) {
  engine::TrainerOptions options;
  ASSIGN_OR_RETURN(options.model, MakeModelConfig(spec.model()));
  RETURN_IF_ERROR(
      CheckLayout(spec.layout(), engine::MakeParameterLayout(options.model)));
  const v1::InnerSpec& inner = spec.inner();
  options.optimizer.kind = inner.optimizer() == v1::INNER_OPTIMIZER_KIND_SGD
                               ? engine::OptimizerKind::kSgd
                               : engine::OptimizerKind::kAdamW;
  if (inner.optimizer() == v1::INNER_OPTIMIZER_KIND_ADAMW) {
    options.optimizer.beta1 = inner.beta1();
    options.optimizer.beta2 = inner.beta2();
    options.optimizer.epsilon = inner.epsilon();
    options.optimizer.weight_decay = inner.weight_decay();
  }
  options.optimizer.clip_norm = inner.clip_norm();
  RETURN_IF_ERROR(engine::ValidateOptimizerOptions(options.optimizer));
  options.schedule.peak = inner.learning_rate();
  options.schedule.warmup_step_count = inner.warmup_step_count();
  options.schedule.total_step_count = PlannedStepCount(spec);
  options.schedule.final_fraction = inner.final_learning_rate_fraction();
  options.batch_size = inner.batch_size();
  options.sequence_length = spec.model().sequence_length();
  options.thread_count = thread_count;
  options.compute = inner.compute() == v1::COMPUTE_TYPE_BF16
                        ? engine::ComputeType::kBf16
                        : engine::ComputeType::kF32;
  return options;
}

}  // namespace atl::worker
