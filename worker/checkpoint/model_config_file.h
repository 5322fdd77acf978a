// Hugging Face's config.json and generation_config.json for llama, gpt2 and
// mixtral. Dropout is ignored: our models have none. Pure. Thread-safe.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"

namespace atl::worker {

std::string ModelConfigJson(const v1::ModelSpec& model);

std::string GenerationConfigJson(const v1::ModelSpec& model);

// Parses config.json. INVALID_ARGUMENT: not JSON, or an unsupported model:
// another model_type, biases in a Llama, a scaled rotary embedding, a GPT-2
// whose head is not tied. The message names the field.
absl::StatusOr<v1::ModelSpec> ParseModelConfig(absl::string_view json);

}  // namespace atl::worker
