#include "worker/engine/model/local_layout.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/model/testing/local_elements.h"
#include "worker/engine/model/unit_slice.h"

namespace atl::engine {
namespace {

ModelConfig Config(Architecture architecture, bool tied) {
  ModelConfig config{.architecture = architecture,
                     .vocab_size = 13,
                     .hidden_size = 24,
                     .intermediate_size = 20,
                     .layer_count = 2,
                     .head_count = 8,
                     .kv_head_count = 4,
                     .sequence_length_max = 7,
                     .tie_embeddings = tied};
  if (config.is_gpt2()) config.kv_head_count = config.head_count;
  if (config.is_mixture()) {
    config.expert_count = 4;
    config.experts_per_token = 2;
  }
  return config;
}

std::vector<ModelConfig> Configs() {
  return {Config(Architecture::kLlama, false),
          Config(Architecture::kLlama, true), Config(Architecture::kGpt2, true),
          Config(Architecture::kMixtral, false)};
}

std::vector<int64_t> Indices(int64_t count) {
  std::vector<int64_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// The model's element index of each element of the rank.
std::vector<int64_t> ListElements(const LocalLayout& local,
                                  const ParameterLayout& model) {
  std::vector<int64_t> elements(local.layout.element_count, -1);
  CutToLocal(local, Indices(model.element_count).data(), elements.data());
  return elements;
}

TEST(LocalLayoutTest, OfTheWholeModelIsThatOfTheModel) {
  for (const ModelConfig& config : Configs()) {
    const ParameterLayout model = MakeParameterLayout(config);
    // cp divides no parameter.
    const LocalLayout local =
        MakeLocalLayout(config, {.cp_size = 2, .cp_rank = 1});
    ASSERT_EQ(local.layout.parameters.size(), model.parameters.size());
    for (size_t i = 0; i < model.parameters.size(); ++i) {
      EXPECT_EQ(local.layout.parameters[i].name, model.parameters[i].name);
      EXPECT_EQ(local.layout.parameters[i].shape, model.parameters[i].shape);
      EXPECT_EQ(local.layout.parameters[i].offset, model.parameters[i].offset);
    }
    EXPECT_EQ(ListElements(local, model), Indices(model.element_count));
    for (size_t u = 0; u < model.units.size(); ++u) {
      EXPECT_EQ(local.units[u].span.begin, model.units[u].begin);
      EXPECT_EQ(local.units[u].dense_count, model.units[u].size());
      EXPECT_EQ(local.units[u].expert_count, 0);
    }
  }
}

TEST(LocalLayoutTest, RanksTogetherHoldEachElementAsOftenAsTheyShould) {
  for (const ModelConfig& config : Configs()) {
    const ParameterLayout model = MakeParameterLayout(config);
    for (int tp : {1, 2, 4}) {
      for (int ep : {1, 2, 4}) {
        if (ep > 1 && !config.is_mixture()) continue;
        SCOPED_TRACE(testing::Message() << "tp " << tp << " ep " << ep);
        std::vector<int> held(model.element_count);
        for (int rank = 0; rank < tp * ep; ++rank) {
          const UnitSlice slice{.tp_size = tp,
                                .tp_rank = rank % tp,
                                .ep_size = ep,
                                .ep_rank = rank / tp};
          ASSERT_TRUE(ValidateSlice(config, slice).ok());
          const LocalLayout local = MakeLocalLayout(config, slice);
          for (int64_t element : ListElements(local, model)) {
            ASSERT_GE(element, 0) << "no element of the rank is without one";
            ++held[element];
          }
        }
        for (const ParameterSpec& spec : model.parameters) {
          const bool vector =
              spec.name.find("norm.") != std::string::npos ||
              spec.name.find("ln_") != std::string::npos ||
              spec.name.find("layernorm") != std::string::npos ||
              spec.name.find("wpe") != std::string::npos ||
              spec.name.find("c_proj.bias") != std::string::npos ||
              spec.name.find("moe.gate") != std::string::npos;
          const bool expert = spec.name.find("experts") != std::string::npos;
          for (int64_t i = 0; i < spec.element_count; ++i) {
            ASSERT_EQ(held[spec.offset + i],
                      (vector ? tp : 1) * (expert ? 1 : ep))
                << spec.name << " " << i;
          }
        }
      }
    }
  }
}

TEST(LocalLayoutTest, UnitsFollowEachOtherWithTheirExpertsLast) {
  const ModelConfig config = Config(Architecture::kMixtral, false);
  const LocalLayout local = MakeLocalLayout(
      config, {.tp_size = 2, .tp_rank = 1, .ep_size = 2, .ep_rank = 1});
  int64_t at = 0;
  for (size_t u = 0; u < local.units.size(); ++u) {
    const LocalUnit& unit = local.units[u];
    EXPECT_EQ(unit.span.begin, at);
    at += unit.dense_count + unit.expert_count;
    EXPECT_EQ(unit.span.end, at);
    EXPECT_EQ(local.layout.units[u].end, at);
    const bool block = u > 0 && u + 1 < local.units.size();
    // Two of four experts, half of each: 3 F C / 2.
    EXPECT_EQ(unit.expert_count, block ? 2 * 3 * 20 * 24 / 2 : 0);
  }
  EXPECT_EQ(at, local.layout.element_count);
  at = 0;
  for (size_t i = 0; i < local.parameters.size(); ++i) {
    const ParameterSpec& spec = local.layout.parameters[i];
    EXPECT_EQ(spec.offset, at) << spec.name;
    at += spec.element_count;
    const LocalUnit& unit = local.units[spec.unit];
    EXPECT_EQ(spec.offset >= unit.span.begin + unit.dense_count,
              spec.expert >= 0)
        << spec.name;
  }
}

TEST(LocalLayoutTest, HeadsOfAFusedMapAreCutOneByOne) {
  // q, k and v of GPT-2 are columns of one matrix.
  const ModelConfig config = Config(Architecture::kGpt2, true);
  const ParameterLayout model = MakeParameterLayout(config);
  const LocalLayout local =
      MakeLocalLayout(config, {.tp_size = 4, .tp_rank = 2});
  const std::vector<int64_t> elements = ListElements(local, model);
  const ParameterSpec* whole = model.Find("transformer.h.1.attn.c_attn.weight");
  const ParameterSpec* mine =
      local.layout.Find("transformer.h.1.attn.c_attn.weight");
  ASSERT_EQ(mine->shape, (std::vector<int64_t>{24, 18}));
  for (int64_t i = 0; i < 24; ++i) {
    for (int64_t j = 0; j < 18; ++j) {
      const int64_t column = j / 6 * 24 + 2 * 6 + j % 6;
      ASSERT_EQ(elements[mine->offset + i * 18 + j],
                whole->offset + i * 72 + column);
    }
  }
}

TEST(LocalLayoutTest, WhatWasCutGoesBackToItsPlace) {
  for (const ModelConfig& config : Configs()) {
    const ParameterLayout model = MakeParameterLayout(config);
    std::vector<int64_t> back(model.element_count, -1);
    for (int tp_rank : {0, 1}) {
      const LocalLayout local =
          MakeLocalLayout(config, {.tp_size = 2, .tp_rank = tp_rank});
      PutIntoGlobal(local, ListElements(local, model).data(), back.data());
    }
    EXPECT_EQ(back, Indices(model.element_count));
  }
}

}  // namespace
}  // namespace atl::engine
