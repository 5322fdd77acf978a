// The named parameters of a model and the place of each in the flat buffer.
// Pure: a function of ModelConfig alone, without oneDNN. Thread-compatible.
//
// Canonical order: the tensors of the embedding, of each block, of the head
// (model/units.h). For Llama and GPT-2 it is the order of a Hugging Face state
// dict. Llama:
//
//   model.embed_tokens.weight [V, C]
//   for each layer N, below model.layers.N:
//     self_attn.q_proj.weight [C, C], k_proj [G D, C], v_proj [G D, C],
//     self_attn.o_proj.weight [C, C]
//     mlp.gate_proj.weight [F, C], up_proj [F, C], down_proj [C, F]
//     input_layernorm.weight [C], post_attention_layernorm.weight [C]
//   model.norm.weight [C], lm_head.weight (untied only) [V, C]
//
// Mixtral: instead of mlp.*, below block_sparse_moe:
//
//     gate.weight [E, C], then for each expert M, below experts.M:
//     w1.weight (gate) [F, C], w3.weight (up) [F, C], w2.weight (down) [C, F]
//
// GPT-2, whose linear maps are stored input-major:
//
//   transformer.wte.weight [V, C], transformer.wpe.weight [T, C]
//   for each layer N, below transformer.h.N:
//     ln_1.weight, ln_1.bias [C]
//     attn.c_attn.weight [C, 3 C], .bias [3 C]
//     attn.c_proj.weight [C, C], .bias [C]
//     ln_2.weight, ln_2.bias [C]
//     mlp.c_fc.weight [C, F], .bias [F]
//     mlp.c_proj.weight [F, C], .bias [C]
//   transformer.ln_f.weight, transformer.ln_f.bias [C]
//
// Tensors are row-major, without gaps. q, k, v and gate, up are adjacent, so
// one matrix product computes them together.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/engine/model/model_config.h"

namespace atl::engine {

enum class ParameterClass {
  kMatrix,     // The weight of a linear map.
  kEmbedding,  // The token embedding, or an untied output head.
  kVector,     // A gain of a norm, or a bias.
};

enum class ParameterInit {
  kNormal,   // Normal with mean 0 and standard deviation `init_value`.
  kConstant  // `init_value`.
};

struct ParameterSpec {
  std::string name;            // Hugging Face's name.
  std::vector<int64_t> shape;  // Row-major.
  int64_t offset = 0;          // First element's place in the flat buffer.
  int64_t element_count = 0;   // Product of `shape`.
  // The unit that has it: 0 the embedding, 1 + i layer i, 1 + L the head.
  int64_t unit = 0;
  ParameterClass parameter_class = ParameterClass::kMatrix;
  ParameterInit init = ParameterInit::kNormal;
  double init_value = 0;  // See ParameterInit.

  // How ranks divide it (model/local_layout.h).
  int64_t expert = -1;     // Index of its expert; -1: none.
  int cut_dimension = -1;  // Dimension of `shape` that tp divides; -1: none.
  // Lengths along that dimension that are divided separately; empty: one.
  std::vector<int64_t> cut_parts;
};

struct ParameterSpan {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

struct ParameterLayout {
  std::vector<ParameterSpec> parameters;
  int64_t element_count = 0;         // Length of the flat buffer.
  std::vector<ParameterSpan> units;  // L + 2, without gaps.

  // Null if there is no parameter of that name.
  const ParameterSpec* Find(const std::string& name) const;
};

// Standard deviation of initial weights. Weights that write into the stream
// (o_proj, down_proj, w2, c_proj) have it over sqrt(2 L), as in GPT-2.
inline constexpr double kInitStddev = 0.02;

// Requires that `config` passes ValidateModelConfig.
ParameterLayout MakeParameterLayout(const ModelConfig& config);

}  // namespace atl::engine
