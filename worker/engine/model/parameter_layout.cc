#include "worker/engine/model/parameter_layout.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace atl::engine {
namespace {

class LayoutBuilder {
 public:
  void BeginUnit() {
    layout_.units.push_back({layout_.element_count, layout_.element_count});
  }
  void AddNormal(std::string name, int64_t rows, int64_t columns,
                 ParameterClass parameter_class, double stddev) {
    Add(std::move(name), {rows, columns}, parameter_class,
        ParameterInit::kNormal, stddev);
  }
  // A gain (value 1) or a bias (0).
  void AddVector(std::string name, int64_t channels, double value) {
    Add(std::move(name), {channels}, ParameterClass::kVector,
        ParameterInit::kConstant, value);
  }
  // Sets how tp divides the parameter that was added last.
  void CutLast(int dimension, std::vector<int64_t> parts = {}) {
    layout_.parameters.back().cut_dimension = dimension;
    layout_.parameters.back().cut_parts = std::move(parts);
  }
  void SetExpertOfLast(int64_t expert) {
    layout_.parameters.back().expert = expert;
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
    spec.unit = static_cast<int64_t>(layout_.units.size()) - 1;
    spec.parameter_class = parameter_class;
    spec.init = init;
    spec.init_value = init_value;
    layout_.element_count += spec.element_count;
    layout_.units.back().end = layout_.element_count;
    layout_.parameters.push_back(std::move(spec));
  }

  ParameterLayout layout_;
};

double ResidualStddev(const ModelConfig& config) {
  return kInitStddev / std::sqrt(2.0 * static_cast<double>(config.layer_count));
}

// Adds the weight `prefix` + `name` + ".weight". tp divides its rows (`cut` 0),
// its columns (1), or nothing (-1).
void AddMatrix(const std::string& prefix, const std::string& name, int64_t rows,
               int64_t columns, int cut, double stddev,
               LayoutBuilder& builder) {
  builder.AddNormal(absl::StrCat(prefix, name, ".weight"), rows, columns,
                    ParameterClass::kMatrix, stddev);
  if (cut >= 0) builder.CutLast(cut);
}

void AddGatedMlp(const ModelConfig& config, const std::string& prefix,
                 LayoutBuilder& builder) {
  const int64_t channels = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  const auto add = [&](const std::string& name, int64_t rows, int64_t columns,
                       int cut, double stddev, int64_t expert) {
    AddMatrix(prefix, name, rows, columns, cut, stddev, builder);
    builder.SetExpertOfLast(expert);
  };
  const auto add_mlp = [&](const std::string& gate, const std::string& up,
                           const std::string& down, int64_t expert) {
    add(gate, inner, channels, 0, kInitStddev, expert);
    add(up, inner, channels, 0, kInitStddev, expert);
    add(down, channels, inner, 1, ResidualStddev(config), expert);
  };
  if (!config.is_mixture()) {
    add_mlp("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", -1);
    return;
  }
  const std::string moe = "block_sparse_moe.";
  AddMatrix(prefix, moe + "gate", config.expert_count, channels, /*cut=*/-1,
            kInitStddev, builder);
  for (int64_t expert = 0; expert < config.expert_count; ++expert) {
    const std::string at = absl::StrCat(moe, "experts.", expert, ".");
    add_mlp(at + "w1", at + "w3", at + "w2", expert);
  }
}

void AddLlamaLayer(const ModelConfig& config, int64_t layer,
                   LayoutBuilder& builder) {
  const int64_t channels = config.hidden_size;
  const int64_t kv_channels = config.kv_head_count * config.head_dim();
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  AddMatrix(prefix, "self_attn.q_proj", channels, channels, /*cut=*/0,
            kInitStddev, builder);
  AddMatrix(prefix, "self_attn.k_proj", kv_channels, channels, /*cut=*/0,
            kInitStddev, builder);
  AddMatrix(prefix, "self_attn.v_proj", kv_channels, channels, /*cut=*/0,
            kInitStddev, builder);
  AddMatrix(prefix, "self_attn.o_proj", channels, channels, /*cut=*/1,
            ResidualStddev(config), builder);
  AddGatedMlp(config, prefix, builder);
  builder.AddVector(prefix + "input_layernorm.weight", channels, 1.0);
  builder.AddVector(prefix + "post_attention_layernorm.weight", channels, 1.0);
}

void AddGpt2Layer(const ModelConfig& config, int64_t layer,
                  LayoutBuilder& builder) {
  const int64_t channels = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  const std::string prefix = absl::StrCat("transformer.h.", layer, ".");
  const auto norm = [&](const char* name) {
    builder.AddVector(absl::StrCat(prefix, name, ".weight"), channels, 1.0);
    builder.AddVector(absl::StrCat(prefix, name, ".bias"), channels, 0.0);
  };
  // tp divides the outputs of the maps into an attention or an MLP, in `parts`,
  // and the inputs of the maps out of it. The bias of a map out of it is whole.
  const auto map_in = [&](const char* name, int64_t out,
                          const std::vector<int64_t>& parts) {
    AddMatrix(prefix, name, channels, out, /*cut=*/1, kInitStddev, builder);
    builder.CutLast(1, parts);
    builder.AddVector(absl::StrCat(prefix, name, ".bias"), out, 0.0);
    builder.CutLast(0, parts);
  };
  const auto map_out = [&](const char* name, int64_t in) {
    AddMatrix(prefix, name, in, channels, /*cut=*/0, ResidualStddev(config),
              builder);
    builder.AddVector(absl::StrCat(prefix, name, ".bias"), channels, 0.0);
  };
  const int64_t kv_channels = config.kv_head_count * config.head_dim();
  norm("ln_1");
  map_in("attn.c_attn", config.qkv_size(),
         {channels, kv_channels, kv_channels});
  map_out("attn.c_proj", channels);
  norm("ln_2");
  map_in("mlp.c_fc", inner, {});
  map_out("mlp.c_proj", inner);
}

void AddEmbedding(const ModelConfig& config, LayoutBuilder& builder) {
  builder.BeginUnit();
  builder.AddNormal(
      config.is_gpt2() ? "transformer.wte.weight" : "model.embed_tokens.weight",
      config.vocab_size, config.hidden_size, ParameterClass::kEmbedding,
      kInitStddev);
  builder.CutLast(0);
  if (config.is_gpt2()) {
    builder.AddNormal("transformer.wpe.weight", config.sequence_length_max,
                      config.hidden_size, ParameterClass::kEmbedding,
                      kInitStddev);
  }
}

void AddHead(const ModelConfig& config, LayoutBuilder& builder) {
  builder.BeginUnit();
  if (config.is_gpt2()) {
    builder.AddVector("transformer.ln_f.weight", config.hidden_size, 1.0);
    builder.AddVector("transformer.ln_f.bias", config.hidden_size, 0.0);
  } else {
    builder.AddVector("model.norm.weight", config.hidden_size, 1.0);
  }
  if (!config.tie_embeddings) {
    builder.AddNormal("lm_head.weight", config.vocab_size, config.hidden_size,
                      ParameterClass::kEmbedding, kInitStddev);
    builder.CutLast(0);
  }
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
  AddEmbedding(config, builder);
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    builder.BeginUnit();
    if (config.is_gpt2()) {
      AddGpt2Layer(config, layer, builder);
    } else {
      AddLlamaLayer(config, layer, builder);
    }
  }
  AddHead(config, builder);
  return std::move(builder).Build();
}

}  // namespace atl::engine
