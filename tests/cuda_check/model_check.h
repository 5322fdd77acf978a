// Compares the model on a device with its definition.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/ops/compute_type.h"
#include "worker/engine/ops/ops.h"

namespace atl::engine::check {

struct ModelCase {
  std::string name;
  ModelConfig config;
  int64_t batch = 2, length = 40;
};

// Llama with grouped queries, GPT-2, and mixtures with and without capacity.
std::vector<ModelCase> ModelCases();

// Random parameters and tokens from `seed`. Compares the loss, the router's
// loss and every gradient with f64. Then compares the losses of 20 AdamW steps
// with the definition in f32. kBf16 has wider bounds.
//
// INTERNAL: a number exceeds its bound; the message says which.
absl::Status CheckModel(const ModelCase& model_case, uint64_t seed,
                        ComputeType compute, Ops& ops);

// Compares replayed steps with called ones, both on `ops`. Losses and norms
// must be equal bit for bit while the learning rate changes. Not for mixtures.
//
// INTERNAL: they differ. FAILED_PRECONDITION: `ops` does not replay, or gave it
// up; the message says why.
absl::Status CheckReplay(const ModelCase& model_case, uint64_t seed, Ops& ops);

}  // namespace atl::engine::check
