#include "worker/engine/model/parameter_layout.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/engine/model/model_config.h"

namespace atl::engine {
namespace {

class LayoutBuilder {
 public:
  void AddNormal(std::string name, int64_t rows, int64_t columns,
                 ParameterClass parameter_class, double stddev) {
    Add(std::move(name), {rows, columns}, parameter_class,
        ParameterInit::kNormal, stddev);
  }
  void AddGain(std::string name, int64_t channels) {
    Add(std::move(name), {channels}, ParameterClass::kVector,
        ParameterInit::kConstant, 1.0);
  }
  ParameterLayout Build() && { return std::move(layout_); }

 private:
  void Add(std::string name, std::vector<int64_t> shape,
           ParameterClass parameter_class, ParameterInit init,
           double init_value) {
    ParameterSpec spec;
    spec.name = std::move(name);
    spec.offset = layout_.element_count;
    spec.element_count = 1;
    for (int64_t dimension : shape) spec.element_count *= dimension;
    spec.shape = std::move(shape);
    spec.parameter_class = parameter_class;
    spec.init = init;
    spec.init_value = init_value;
    layout_.element_count += spec.element_count;
    layout_.parameters.push_back(std::move(spec));
  }

  ParameterLayout layout_;
};

void AddLayer(const ModelConfig& config, int64_t layer,
              LayoutBuilder& builder) {
  const int64_t channels = config.hidden_size;
  const int64_t kv_channels = config.kv_head_count * config.head_dim();
  const int64_t inner = config.intermediate_size;
  const double residual_stddev =
      kInitStddev / std::sqrt(2.0 * static_cast<double>(config.layer_count));
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  auto matrix = [&](const char* name, int64_t rows, int64_t columns,
                    double stddev) {
    builder.AddNormal(absl::StrCat(prefix, name, ".weight"), rows, columns,
                      ParameterClass::kMatrix, stddev);
  };
  matrix("self_attn.q_proj", channels, channels, kInitStddev);
  matrix("self_attn.k_proj", kv_channels, channels, kInitStddev);
  matrix("self_attn.v_proj", kv_channels, channels, kInitStddev);
  matrix("self_attn.o_proj", channels, channels, residual_stddev);
  matrix("mlp.gate_proj", inner, channels, kInitStddev);
  matrix("mlp.up_proj", inner, channels, kInitStddev);
  matrix("mlp.down_proj", channels, inner, residual_stddev);
  builder.AddGain(prefix + "input_layernorm.weight", channels);
  builder.AddGain(prefix + "post_attention_layernorm.weight", channels);
}

}  // namespace

const ParameterSpec* ParameterLayout::Find(const std::string& name) const {
  for (const ParameterSpec& spec : parameters) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

ParameterLayout MakeParameterLayout(const ModelConfig& config) {
  LayoutBuilder builder;
  builder.AddNormal("model.embed_tokens.weight", config.vocab_size,
                    config.hidden_size, ParameterClass::kEmbedding,
                    kInitStddev);
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    AddLayer(config, layer, builder);
  }
  builder.AddGain("model.norm.weight", config.hidden_size);
  if (!config.tie_embeddings) {
    builder.AddNormal("lm_head.weight", config.vocab_size, config.hidden_size,
                      ParameterClass::kEmbedding, kInitStddev);
  }
  return std::move(builder).Build();
}

}  // namespace atl::engine
