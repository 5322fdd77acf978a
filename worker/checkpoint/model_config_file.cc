#include "worker/checkpoint/model_config_file.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "nlohmann/json.hpp"

namespace atl::worker {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("config.json: ", what));
}

// A positive number of at most 2^31 - 1, or `missing` if it is not there.
absl::StatusOr<int32_t> GetSize(const Json& json, const char* name,
                                int32_t missing = 0) {
  const auto found = json.find(name);
  if (found == json.end() || found->is_null()) {
    if (missing > 0) return missing;
    return Wrong(absl::StrCat(name, " is missing"));
  }
  if (!found->is_number_integer() || found->get<int64_t>() < 1 ||
      found->get<int64_t>() > INT32_MAX) {
    return Wrong(absl::StrCat(name, " is not a positive number"));
  }
  return static_cast<int32_t>(found->get<int64_t>());
}

absl::StatusOr<double> GetReal(const Json& json, const char* name,
                               double missing) {
  const auto found = json.find(name);
  if (found == json.end() || found->is_null()) return missing;
  if (!found->is_number() || !(found->get<double>() > 0)) {
    return Wrong(absl::StrCat(name, " is not a positive number"));
  }
  return found->get<double>();
}

absl::Status RequireFalse(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || found->is_null() ||
      (found->is_boolean() && !found->get<bool>())) {
    return absl::OkStatus();
  }
  return Wrong(absl::StrCat(name, " is set; this program has no such model"));
}

}  // namespace

std::string ModelConfigJson(const v1::ModelSpec& model) {
  OrderedJson json;
  json["architectures"] = {"LlamaForCausalLM"};
  json["model_type"] = "llama";
  json["vocab_size"] = model.vocab_size();
  json["hidden_size"] = model.hidden_size();
  json["intermediate_size"] = model.intermediate_size();
  json["num_hidden_layers"] = model.layer_count();
  json["num_attention_heads"] = model.head_count();
  json["num_key_value_heads"] = model.kv_head_count();
  json["head_dim"] = model.hidden_size() / model.head_count();
  json["max_position_embeddings"] = model.sequence_length();
  json["rope_theta"] = model.rope_theta();
  json["rms_norm_eps"] = model.rms_norm_eps();
  json["tie_word_embeddings"] = model.tie_embeddings();
  json["hidden_act"] = "silu";
  json["attention_bias"] = false;
  json["mlp_bias"] = false;
  json["attention_dropout"] = 0.0;
  json["initializer_range"] = 0.02;
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  json["pad_token_id"] = nullptr;
  json["torch_dtype"] = "float32";
  json["use_cache"] = true;
  return json.dump(2) + "\n";
}

std::string GenerationConfigJson(const v1::ModelSpec& model) {
  OrderedJson json;
  json["do_sample"] = true;
  json["temperature"] = 0.8;
  json["max_length"] = model.sequence_length();
  return json.dump(2) + "\n";
}

absl::StatusOr<v1::ModelSpec> ParseModelConfig(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr,
                                /*allow_exceptions=*/false);
  if (!json.is_object()) return Wrong("it is not a JSON object");
  const auto type = json.find("model_type");
  if (type == json.end() || *type != "llama") {
    return Wrong("model_type is not \"llama\"");
  }
  const auto activation = json.find("hidden_act");
  if (activation != json.end() && *activation != "silu") {
    return Wrong("hidden_act is not \"silu\"");
  }
  RETURN_IF_ERROR(RequireFalse(json, "attention_bias"));
  RETURN_IF_ERROR(RequireFalse(json, "mlp_bias"));
  RETURN_IF_ERROR(RequireFalse(json, "rope_scaling"));
  v1::ModelSpec model;
  model.set_architecture("llama");
  ASSIGN_OR_RETURN(const int32_t vocab_size, GetSize(json, "vocab_size"));
  ASSIGN_OR_RETURN(const int32_t hidden_size, GetSize(json, "hidden_size"));
  ASSIGN_OR_RETURN(const int32_t intermediate_size,
                   GetSize(json, "intermediate_size"));
  ASSIGN_OR_RETURN(const int32_t layer_count,
                   GetSize(json, "num_hidden_layers"));
  ASSIGN_OR_RETURN(const int32_t head_count,
                   GetSize(json, "num_attention_heads"));
  ASSIGN_OR_RETURN(const int32_t kv_head_count,
                   GetSize(json, "num_key_value_heads", head_count));
  ASSIGN_OR_RETURN(const int32_t sequence_length,
                   GetSize(json, "max_position_embeddings"));
  ASSIGN_OR_RETURN(
      const int32_t head_dim,
      GetSize(json, "head_dim", std::max(1, hidden_size / head_count)));
  if (head_dim != hidden_size / head_count) {
    return Wrong("head_dim is not hidden_size / num_attention_heads");
  }
  ASSIGN_OR_RETURN(const double rope_theta,
                   GetReal(json, "rope_theta", 10000.0));
  ASSIGN_OR_RETURN(const double rms_norm_eps,
                   GetReal(json, "rms_norm_eps", 1e-6));
  model.set_vocab_size(vocab_size);
  model.set_hidden_size(hidden_size);
  model.set_intermediate_size(intermediate_size);
  model.set_layer_count(layer_count);
  model.set_head_count(head_count);
  model.set_kv_head_count(kv_head_count);
  model.set_sequence_length(sequence_length);
  model.set_rope_theta(rope_theta);
  model.set_rms_norm_eps(rms_norm_eps);
  const auto tied = json.find("tie_word_embeddings");
  model.set_tie_embeddings(tied != json.end() && tied->is_boolean() &&
                           tied->get<bool>());
  return model;
}

}  // namespace atl::worker
