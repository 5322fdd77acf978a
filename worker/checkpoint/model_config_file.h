// config.json and generation_config.json as Hugging Face writes them, of models
// of type llama, gpt2 and mixtral. Dropout is not read: nothing drops out here.
//
// Pure. Thread-safe.

#ifndef WORKER_CHECKPOINT_MODEL_CONFIG_FILE_H_
#define WORKER_CHECKPOINT_MODEL_CONFIG_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"

namespace atl::worker {

// The text of config.json.
std::string ModelConfigJson(const v1::ModelSpec& model);

// The text of generation_config.json.
std::string GenerationConfigJson(const v1::ModelSpec& model);

// Reads config.json.
//
// INVALID_ARGUMENT: it is not JSON, or not a model that this program can build:
// another model_type, biases of a Llama, a scaled rotary embedding, a GPT-2
// whose head is not tied; the message names the field.
absl::StatusOr<v1::ModelSpec> ParseModelConfig(absl::string_view json);

}  // namespace atl::worker

#endif  // WORKER_CHECKPOINT_MODEL_CONFIG_FILE_H_
