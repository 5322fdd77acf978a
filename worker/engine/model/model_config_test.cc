#include "worker/engine/model/model_config.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace atl::engine {
namespace {

TEST(ModelConfigTest, AcceptsTheDefaultAndAGroupedQueryShape) {
  EXPECT_TRUE(ValidateModelConfig(ModelConfig{}).ok());
  ModelConfig grouped;
  grouped.head_count = 8;
  grouped.kv_head_count = 2;
  EXPECT_TRUE(ValidateModelConfig(grouped).ok());
  EXPECT_EQ(grouped.head_dim(), 16);
  EXPECT_EQ(grouped.qkv_size(), 128 + 2 * 2 * 16);
}

TEST(ModelConfigTest, RefusesEachBadFieldAndNamesIt) {
  const struct {
    std::string field;
    std::function<void(ModelConfig&)> spoil;
  } cases[] = {
      {"vocab_size", [](ModelConfig& c) { c.vocab_size = 1; }},
      {"hidden_size", [](ModelConfig& c) { c.hidden_size = -128; }},
      {"hidden_size", [](ModelConfig& c) { c.hidden_size = 130; }},
      {"intermediate_size", [](ModelConfig& c) { c.intermediate_size = 0; }},
      {"layer_count", [](ModelConfig& c) { c.layer_count = 0; }},
      {"layer_count", [](ModelConfig& c) { c.layer_count = 1 << 20; }},
      {"head_count", [](ModelConfig& c) { c.head_count = 3; }},
      {"kv_head_count", [](ModelConfig& c) { c.kv_head_count = 3; }},
      {"even", [](ModelConfig& c) { c.head_count = c.kv_head_count = 128; }},
      {"sequence_length_max",
       [](ModelConfig& c) { c.sequence_length_max = 0; }},
      {"rope_theta", [](ModelConfig& c) { c.rope_theta = 0; }},
      {"rms_norm_eps",
       [](ModelConfig& c) {
         c.rms_norm_eps = std::numeric_limits<double>::quiet_NaN();
       }},
      {"2^40",
       [](ModelConfig& c) {
         c.vocab_size = c.hidden_size = c.intermediate_size = 1 << 24;
       }},
  };
  for (const auto& c : cases) {
    ModelConfig config;
    c.spoil(config);
    const absl::Status status = ValidateModelConfig(config);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.field;
    EXPECT_NE(std::string(status.message()).find(c.field), std::string::npos)
        << c.field << ": " << status;
  }
}

}  // namespace
}  // namespace atl::engine
