// The shape of a decoder, in Hugging Face's terms. Pure. Thread-compatible.

#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace atl::engine {

// Shape letters used in worker/engine:
//
//   V  vocab_size            C   hidden_size        F  intermediate_size
//   H  head_count            G   kv_head_count      D  head_dim = C / H
//   L  layer_count           T   sequence length    B  sequences in a batch
//   R = B * T                rows: one per token
//   E  expert_count          K   experts_per_token
//
// Three architectures (model/units.h defines a layer):
//
//   kLlama    RMSNorm, rotary positions, SwiGLU, no biases
//   kGpt2     LayerNorm, learned positions, GELU, biases; the head is tied
//   kMixtral  kLlama with a mixture of E SwiGLU experts as each MLP
enum class Architecture { kLlama, kGpt2, kMixtral };

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  int64_t vocab_size = 256;         // Tokens, >= 2.
  int64_t hidden_size = 128;        // Channels, a multiple of head_count.
  int64_t intermediate_size = 344;  // Channels of the MLP, >= 1.
  int64_t layer_count = 4;          // Decoder layers, >= 1.
  int64_t head_count = 4;           // Query heads.
  int64_t kv_head_count = 4;        // Key and value heads; divides head_count.
  int64_t sequence_length_max = 128;  // Tokens per sequence, >= 1.
  double rope_theta = 10000.0;        // Base of the rotary embedding, > 0.
  // Added to the mean square (kGpt2: to the variance), > 0.
  double rms_norm_eps = 1e-5;
  bool tie_embeddings = false;  // The output head is the embedding.

  // kMixtral only.
  int64_t expert_count = 0;       // E, in [1, 1024].
  int64_t experts_per_token = 0;  // K, in [1, min(E, 16)]; 1 is a hard gate.
  // Weight of the load-balancing loss, >= 0. The loss is E sum over e of
  // (choices of e / (L R)) (sum of e's probabilities / (L R)), over all layers
  // and rows (arXiv 2101.03961, summed as Hugging Face does).
  double router_loss_weight = 0;
  // An expert takes at most the first ceil(factor K T / E) rows of each
  // sequence, with T = sequence_length_max. Dropped rows pass by on the
  // residual stream. 0: no limit.
  double expert_capacity_factor = 0;

  bool is_gpt2() const { return architecture == Architecture::kGpt2; }
  bool is_mixture() const { return architecture == Architecture::kMixtral; }

  // D. Must be even with rotary positions, which rotate pairs of channels.
  int64_t head_dim() const { return hidden_size / head_count; }
  // C + 2 G D: channels of queries, keys and values of one row.
  int64_t qkv_size() const {
    return hidden_size + 2 * kv_head_count * head_dim();
  }
};

// INVALID_ARGUMENT, naming the field: a size is out of range or does not divide
// as it must. Sizes are bounded (each dimension by 2^24, layers by 2^16,
// parameters by 2^40), so no product of them overflows.
absl::Status ValidateModelConfig(const ModelConfig& config);

}  // namespace atl::engine
