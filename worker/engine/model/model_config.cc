#include "worker/engine/model/model_config.h"

#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace atl::engine {
namespace {

constexpr int64_t kDimensionMax = int64_t{1} << 24;
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

// In f64, which holds it without overflow.
double ApproximateParameterCount(const ModelConfig& c) {
  const double channels = static_cast<double>(c.hidden_size);
  const double layer =
      channels * (static_cast<double>(c.qkv_size()) + channels +
                  3.0 * static_cast<double>(c.intermediate_size) + 2.0);
  const double tables = c.tie_embeddings ? 1.0 : 2.0;
  return static_cast<double>(c.layer_count) * layer +
         tables * static_cast<double>(c.vocab_size) * channels + channels;
}

}  // namespace

absl::Status ValidateModelConfig(const ModelConfig& config) {
  absl::Status status = CheckSizes(config);
  if (!status.ok()) return status;
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
  if (config.head_dim() % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model: hidden_size / head_count is ", config.head_dim(),
                     ", which must be even for the rotary embedding"));
  }
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
