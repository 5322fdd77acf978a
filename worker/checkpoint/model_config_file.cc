#include "worker/checkpoint/model_config_file.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "nlohmann/json.hpp"

namespace atl::worker {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// Our own key: Hugging Face's Mixtral has no capacity and ignores it.
constexpr char kCapacityFactor[] = "expert_capacity_factor";

absl::Status WrongConfig(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("config.json: ", what));
}

// A positive number of at most 2^31 - 1, or `missing` if absent.
absl::StatusOr<int32_t> GetSize(const Json& json, const char* name,
                                int32_t missing = 0) {
  const auto found = json.find(name);
  if (found == json.end() || found->is_null()) {
    if (missing > 0) return missing;
    return WrongConfig(absl::StrCat(name, " is missing"));
  }
  if (!found->is_number_integer() || found->get<int64_t>() < 1 ||
      found->get<int64_t>() > INT32_MAX) {
    return WrongConfig(absl::StrCat(name, " is not a positive number"));
  }
  return static_cast<int32_t>(found->get<int64_t>());
}

absl::StatusOr<double> GetReal(const Json& json, const char* name,
                               double missing) {
  const auto found = json.find(name);
  if (found == json.end() || found->is_null()) return missing;
  if (!found->is_number() || !(found->get<double>() > 0)) {
    return WrongConfig(absl::StrCat(name, " is not a positive number"));
  }
  return found->get<double>();
}

absl::Status RequireFalse(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || found->is_null() ||
      (found->is_boolean() && !found->get<bool>())) {
    return absl::OkStatus();
  }
  return WrongConfig(
      absl::StrCat(name, " is set; this program has no such model"));
}

// INVALID_ARGUMENT: the field is present and is not `value`.
absl::Status Require(const Json& json, const char* name, const Json& value) {
  const auto found = json.find(name);
  if (found == json.end() || found->is_null() || *found == value) {
    return absl::OkStatus();
  }
  return WrongConfig(absl::StrCat(name, " is ", found->dump(), ", not ",
                                  value.dump(),
                                  ": this program has no such model"));
}

absl::StatusOr<double> GetNotNegative(const Json& json, const char* name,
                                      double missing) {
  const auto found = json.find(name);
  if (found == json.end() || found->is_null()) return missing;
  if (!found->is_number() || !(found->get<double>() >= 0)) {
    return WrongConfig(absl::StrCat(name, " is not a number of at least 0"));
  }
  return found->get<double>();
}

bool GetBool(const Json& json, const char* name, bool missing) {
  const auto found = json.find(name);
  return found != json.end() && found->is_boolean() ? found->get<bool>()
                                                    : missing;
}

absl::Status ReadSize(const Json& json, const char* name,
                      void (v1::ModelSpec::*set)(int32_t), v1::ModelSpec& model,
                      int32_t missing = 0) {
  ASSIGN_OR_RETURN(const int32_t size, GetSize(json, name, missing));
  (model.*set)(size);
  return absl::OkStatus();
}

// The base of the rotary embedding; newer files have it in rope_parameters.
absl::Status ReadRope(const Json& json, v1::ModelSpec& model) {
  RETURN_IF_ERROR(RequireFalse(json, "rope_scaling"));
  const Json* from = &json;
  const auto rope = json.find("rope_parameters");
  if (rope != json.end() && rope->is_object()) {
    RETURN_IF_ERROR(Require(*rope, "rope_type", "default"));
    RETURN_IF_ERROR(Require(*rope, "partial_rotary_factor", 1.0));
    if (rope->contains("rope_theta")) from = &*rope;
  }
  ASSIGN_OR_RETURN(const double theta, GetReal(*from, "rope_theta", 10000.0));
  model.set_rope_theta(theta);
  return absl::OkStatus();
}

absl::Status ReadMixture(const Json& json, v1::ModelSpec& model) {
  RETURN_IF_ERROR(ReadSize(json, "num_local_experts",
                           &v1::ModelSpec::set_expert_count, model));
  RETURN_IF_ERROR(ReadSize(json, "num_experts_per_tok",
                           &v1::ModelSpec::set_experts_per_token, model));
  ASSIGN_OR_RETURN(const double loss,
                   GetNotNegative(json, "router_aux_loss_coef", 0.001));
  ASSIGN_OR_RETURN(const double capacity,
                   GetNotNegative(json, kCapacityFactor, 0));
  model.set_router_loss_weight(loss);
  model.set_expert_capacity_factor(capacity);
  RETURN_IF_ERROR(Require(json, "router_jitter_noise", 0.0));
  return absl::OkStatus();
}

absl::StatusOr<v1::ModelSpec> ParseLlama(const Json& json, bool is_mixture) {
  RETURN_IF_ERROR(Require(json, "hidden_act", "silu"));
  RETURN_IF_ERROR(RequireFalse(json, "attention_bias"));
  RETURN_IF_ERROR(RequireFalse(json, "mlp_bias"));
  RETURN_IF_ERROR(RequireFalse(json, "sliding_window"));
  v1::ModelSpec model;
  using Spec = v1::ModelSpec;
  model.set_architecture(is_mixture ? "mixtral" : "llama");
  RETURN_IF_ERROR(ReadSize(json, "vocab_size", &Spec::set_vocab_size, model));
  RETURN_IF_ERROR(ReadSize(json, "hidden_size", &Spec::set_hidden_size, model));
  RETURN_IF_ERROR(
      ReadSize(json, "intermediate_size", &Spec::set_intermediate_size, model));
  RETURN_IF_ERROR(
      ReadSize(json, "num_hidden_layers", &Spec::set_layer_count, model));
  RETURN_IF_ERROR(
      ReadSize(json, "num_attention_heads", &Spec::set_head_count, model));
  RETURN_IF_ERROR(ReadSize(json, "num_key_value_heads",
                           &Spec::set_kv_head_count, model,
                           model.head_count()));
  RETURN_IF_ERROR(ReadSize(json, "max_position_embeddings",
                           &Spec::set_sequence_length, model));
  const int32_t even = std::max(1, model.hidden_size() / model.head_count());
  ASSIGN_OR_RETURN(const int32_t head_dim, GetSize(json, "head_dim", even));
  if (head_dim != model.hidden_size() / model.head_count()) {
    return WrongConfig("head_dim is not hidden_size / num_attention_heads");
  }
  RETURN_IF_ERROR(ReadRope(json, model));
  ASSIGN_OR_RETURN(const double eps,
                   GetReal(json, "rms_norm_eps", is_mixture ? 1e-5 : 1e-6));
  model.set_rms_norm_eps(eps);
  model.set_tie_embeddings(GetBool(json, "tie_word_embeddings", false));
  if (is_mixture) RETURN_IF_ERROR(ReadMixture(json, model));
  return model;
}

absl::StatusOr<v1::ModelSpec> ParseGpt2(const Json& json) {
  // Two names of the same function.
  if (json.value("activation_function", Json()) != "gelu_pytorch_tanh") {
    RETURN_IF_ERROR(Require(json, "activation_function", "gelu_new"));
  }
  RETURN_IF_ERROR(RequireFalse(json, "scale_attn_by_inverse_layer_idx"));
  RETURN_IF_ERROR(RequireFalse(json, "add_cross_attention"));
  RETURN_IF_ERROR(Require(json, "scale_attn_weights", true));
  RETURN_IF_ERROR(Require(json, "tie_word_embeddings", true));
  v1::ModelSpec model;
  using Spec = v1::ModelSpec;
  model.set_architecture("gpt2");
  model.set_tie_embeddings(true);
  RETURN_IF_ERROR(ReadSize(json, "vocab_size", &Spec::set_vocab_size, model));
  RETURN_IF_ERROR(ReadSize(json, "n_embd", &Spec::set_hidden_size, model));
  if (model.hidden_size() > (1 << 24)) {
    return WrongConfig("n_embd is too large");
  }
  RETURN_IF_ERROR(ReadSize(json, "n_inner", &Spec::set_intermediate_size, model,
                           4 * model.hidden_size()));
  RETURN_IF_ERROR(ReadSize(json, "n_layer", &Spec::set_layer_count, model));
  RETURN_IF_ERROR(ReadSize(json, "n_head", &Spec::set_head_count, model));
  model.set_kv_head_count(model.head_count());
  RETURN_IF_ERROR(
      ReadSize(json, "n_positions", &Spec::set_sequence_length, model));
  ASSIGN_OR_RETURN(const double eps, GetReal(json, "layer_norm_epsilon", 1e-5));
  model.set_rms_norm_eps(eps);
  return model;
}

void AddCommon(OrderedJson& json) {
  json["initializer_range"] = 0.02;
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  json["pad_token_id"] = nullptr;
  json["torch_dtype"] = "float32";
  json["use_cache"] = true;
}

OrderedJson LlamaJson(const v1::ModelSpec& model) {
  const bool is_mixture = model.architecture() == "mixtral";
  OrderedJson json;
  json["architectures"] = {is_mixture ? "MixtralForCausalLM"
                                      : "LlamaForCausalLM"};
  json["model_type"] = is_mixture ? "mixtral" : "llama";
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
  if (is_mixture) {
    json["num_local_experts"] = model.expert_count();
    json["num_experts_per_tok"] = model.experts_per_token();
    json["router_aux_loss_coef"] = model.router_loss_weight();
    json["router_jitter_noise"] = 0.0;
    json["output_router_logits"] = false;
    json["sliding_window"] = nullptr;
    if (model.expert_capacity_factor() > 0) {
      json[kCapacityFactor] = model.expert_capacity_factor();
    }
  } else {
    json["attention_bias"] = false;
    json["mlp_bias"] = false;
  }
  json["attention_dropout"] = 0.0;
  AddCommon(json);
  return json;
}

OrderedJson Gpt2Json(const v1::ModelSpec& model) {
  OrderedJson json;
  json["architectures"] = {"GPT2LMHeadModel"};
  json["model_type"] = "gpt2";
  json["vocab_size"] = model.vocab_size();
  json["n_embd"] = model.hidden_size();
  json["n_inner"] = model.intermediate_size();
  json["n_layer"] = model.layer_count();
  json["n_head"] = model.head_count();
  json["n_positions"] = model.sequence_length();
  json["layer_norm_epsilon"] = model.rms_norm_eps();
  json["activation_function"] = "gelu_new";
  json["tie_word_embeddings"] = true;
  json["scale_attn_weights"] = true;
  json["scale_attn_by_inverse_layer_idx"] = false;
  json["resid_pdrop"] = 0.0;
  json["embd_pdrop"] = 0.0;
  json["attn_pdrop"] = 0.0;
  AddCommon(json);
  return json;
}

}  // namespace

std::string ModelConfigJson(const v1::ModelSpec& model) {
  const OrderedJson json =
      model.architecture() == "gpt2" ? Gpt2Json(model) : LlamaJson(model);
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
  if (!json.is_object()) return WrongConfig("it is not a JSON object");
  const auto type = json.find("model_type");
  if (type != json.end() && *type == "gpt2") return ParseGpt2(json);
  if (type != json.end() && (*type == "llama" || *type == "mixtral")) {
    return ParseLlama(json, *type == "mixtral");
  }
  return WrongConfig(
      absl::StrCat("model_type is ",
                   type != json.end() && type->is_string()
                       ? absl::StrCat("\"", type->get<std::string>(), "\"")
                       : "missing",
                   "; \"llama\", \"gpt2\" and \"mixtral\" can be built"));
}

}  // namespace atl::worker
