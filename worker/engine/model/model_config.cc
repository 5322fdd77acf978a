#include "worker/engine/model/model_config.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace atl::engine {
namespace {

constexpr int64_t kDimensionMax = int64_t{1} << 24;
constexpr int64_t kExpertsPerTokenMax = 16;
constexpr int64_t kLayersMax = int64_t{1} << 16;
constexpr double kParametersMax = 1099511627776.0;  // 2^40

absl::Status CheckRange(const char* field, int64_t value, int64_t min,
                        int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "model: ", field, " is ", value, ", not in [", min, ", ", max, "]"));
}

absl::Status CheckSizes(const ModelConfig& c) {
  const struct {
    const char* field;
    int64_t value, min, max;
  } checks[] = {
      {"vocab_size", c.vocab_size, 2, kDimensionMax},
      {"hidden_size", c.hidden_size, 2, kDimensionMax},
      {"intermediate_size", c.intermediate_size, 1, kDimensionMax},
      {"layer_count", c.layer_count, 1, kLayersMax},
      {"head_count", c.head_count, 1, kDimensionMax},
      {"kv_head_count", c.kv_head_count, 1, kDimensionMax},
      {"sequence_length_max", c.sequence_length_max, 1, kDimensionMax},
  };
  for (const auto& check : checks) {
    absl::Status status =
        CheckRange(check.field, check.value, check.min, check.max);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// In f64, which does not overflow.
double ApproximateParameterCount(const ModelConfig& c) {
  const double channels = static_cast<double>(c.hidden_size);
  const double experts =
      c.is_mixture() ? static_cast<double>(c.expert_count) : 1.0;
  // 16 channels more than cover biases and the router.
  const double layer =
      channels *
      (static_cast<double>(c.qkv_size()) + channels +
       (3.0 * static_cast<double>(c.intermediate_size) + 1.0) * experts + 16.0);
  const double tables = c.tie_embeddings ? 1.0 : 2.0;
  return static_cast<double>(c.layer_count) * layer +
         tables * static_cast<double>(c.vocab_size) * channels + channels;
}

absl::Status CheckHeads(const ModelConfig& config) {
  if (config.hidden_size % config.head_count != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model: head_count ", config.head_count,
                     " does not divide hidden_size ", config.hidden_size));
  }
  if (config.head_count % config.kv_head_count != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model: kv_head_count ", config.kv_head_count,
                     " does not divide head_count ", config.head_count));
  }
  if (!config.is_gpt2() && config.head_dim() % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model: hidden_size / head_count is ", config.head_dim(),
                     ", which must be even for the rotary embedding"));
  }
  return absl::OkStatus();
}

absl::Status CheckGpt2(const ModelConfig& config) {
  if (config.kv_head_count != config.head_count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model: kv_head_count is ", config.kv_head_count,
        ", but in GPT-2 it must equal head_count (", config.head_count, ")"));
  }
  if (!config.tie_embeddings) {
    return absl::InvalidArgumentError(
        "model: GPT-2's output head is its embedding: tie_embeddings must be "
        "true");
  }
  return absl::OkStatus();
}

absl::Status CheckMixture(const ModelConfig& c) {
  absl::Status status = CheckRange("expert_count", c.expert_count, 1, 1024);
  if (!status.ok()) return status;
  status = CheckRange("experts_per_token", c.experts_per_token, 1,
                      std::min(c.expert_count, kExpertsPerTokenMax));
  if (!status.ok()) return status;
  if (!(std::isfinite(c.router_loss_weight) && c.router_loss_weight >= 0)) {
    return absl::InvalidArgumentError(
        "model: router_loss_weight must be finite and at least 0");
  }
  if (!(std::isfinite(c.expert_capacity_factor) &&
        c.expert_capacity_factor >= 0)) {
    return absl::InvalidArgumentError(
        "model: expert_capacity_factor must be finite and at least 0");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateModelConfig(const ModelConfig& config) {
  absl::Status status = CheckSizes(config);
  if (!status.ok()) return status;
  status = CheckHeads(config);
  if (status.ok() && config.is_gpt2()) status = CheckGpt2(config);
  if (status.ok() && config.is_mixture()) status = CheckMixture(config);
  if (!status.ok()) return status;
  if (!(std::isfinite(config.rope_theta) && config.rope_theta > 0)) {
    return absl::InvalidArgumentError(
        "model: rope_theta must be finite and above 0");
  }
  if (!(std::isfinite(config.rms_norm_eps) && config.rms_norm_eps > 0)) {
    return absl::InvalidArgumentError(
        "model: rms_norm_eps must be finite and above 0");
  }
  if (ApproximateParameterCount(config) > kParametersMax) {
    return absl::InvalidArgumentError("model: more than 2^40 parameters");
  }
  return absl::OkStatus();
}

}  // namespace atl::engine
