#include "worker/engine/model/parameter_layout.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "worker/engine/model/model_config.h"

namespace atl::engine {
namespace {

ModelConfig GroupedQueryConfig() {
  ModelConfig config;
  config.vocab_size = 100;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.layer_count = 2;
  config.head_count = 4;
  config.kv_head_count = 2;
  return config;
}

TEST(ParameterLayoutTest, NamesAndShapesAreThoseOfAHuggingFaceLlama) {
  const ParameterLayout layout = MakeParameterLayout(GroupedQueryConfig());
  const std::vector<std::string> first = {
      "model.embed_tokens.weight",
      "model.layers.0.self_attn.q_proj.weight",
      "model.layers.0.self_attn.k_proj.weight",
      "model.layers.0.self_attn.v_proj.weight",
      "model.layers.0.self_attn.o_proj.weight",
      "model.layers.0.mlp.gate_proj.weight",
      "model.layers.0.mlp.up_proj.weight",
      "model.layers.0.mlp.down_proj.weight",
      "model.layers.0.input_layernorm.weight",
      "model.layers.0.post_attention_layernorm.weight",
      "model.layers.1.self_attn.q_proj.weight",
  };
  ASSERT_EQ(layout.parameters.size(), 1u + 2 * 9 + 2);
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(layout.parameters[i].name, first[i]);
  }
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(layout.parameters[0].shape, (Shape{100, 32}));
  EXPECT_EQ(layout.parameters[1].shape, (Shape{32, 32}));
  EXPECT_EQ(layout.parameters[2].shape, (Shape{16, 32}));
  EXPECT_EQ(layout.parameters[7].shape, (Shape{32, 48}));
  EXPECT_EQ(layout.parameters[8].shape, (Shape{32}));
  EXPECT_EQ(layout.parameters[19].name, "model.norm.weight");
  EXPECT_EQ(layout.parameters[20].name, "lm_head.weight");
}

TEST(ParameterLayoutTest, TensorsFollowEachOtherWithoutAGap) {
  const ParameterLayout layout = MakeParameterLayout(GroupedQueryConfig());
  int64_t offset = 0;
  for (const ParameterSpec& spec : layout.parameters) {
    EXPECT_EQ(spec.offset, offset) << spec.name;
    int64_t product = 1;
    for (int64_t dimension : spec.shape) product *= dimension;
    EXPECT_EQ(spec.element_count, product) << spec.name;
    offset += product;
  }
  EXPECT_EQ(layout.element_count, offset);
}

TEST(ParameterLayoutTest, ATiedHeadHasNoTensorOfItsOwn) {
  ModelConfig config = GroupedQueryConfig();
  config.tie_embeddings = true;
  const ParameterLayout layout = MakeParameterLayout(config);
  EXPECT_EQ(layout.Find("lm_head.weight"), nullptr);
  EXPECT_NE(layout.Find("model.norm.weight"), nullptr);
}

TEST(ParameterLayoutTest, WeightsIntoTheResidualStreamStartSmaller) {
  const ParameterLayout layout = MakeParameterLayout(GroupedQueryConfig());
  for (const ParameterSpec& spec : layout.parameters) {
    if (spec.parameter_class == ParameterClass::kVector) {
      EXPECT_EQ(spec.init, ParameterInit::kConstant) << spec.name;
      EXPECT_EQ(spec.init_value, 1.0) << spec.name;
      continue;
    }
    const bool residual = spec.name.find("o_proj") != std::string::npos ||
                          spec.name.find("down_proj") != std::string::npos;
    EXPECT_EQ(spec.init, ParameterInit::kNormal) << spec.name;
    EXPECT_DOUBLE_EQ(spec.init_value, residual ? 0.02 / std::sqrt(4.0) : 0.02)
        << spec.name;
  }
}

TEST(ParameterLayoutTest, EmbeddingAndHeadAreOfTheEmbeddingClass) {
  const ParameterLayout layout = MakeParameterLayout(GroupedQueryConfig());
  for (const ParameterSpec& spec : layout.parameters) {
    const bool embedding = spec.name == "model.embed_tokens.weight" ||
                           spec.name == "lm_head.weight";
    EXPECT_EQ(spec.parameter_class == ParameterClass::kEmbedding, embedding)
        << spec.name;
  }
}

}  // namespace
}  // namespace atl::engine
