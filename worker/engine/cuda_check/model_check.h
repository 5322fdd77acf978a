// The model on a device against the model by definition.

#ifndef WORKER_ENGINE_CUDA_CHECK_MODEL_CHECK_H_
#define WORKER_ENGINE_CUDA_CHECK_MODEL_CHECK_H_

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

// Random parameters and tokens of `seed`: loss, router's loss and every
// gradient against f64; then the losses of 20 AdamW steps against the
// definition in f32. With kBf16 the bounds are wider.
//
// INTERNAL: a number is further off than it may be; the message says which.
absl::Status CheckModel(const ModelCase& model_case, uint64_t seed,
                        ComputeType compute, Ops& ops);

// A step that is replayed against one that is called, both on `ops`: some steps
// with a learning rate that changes have the same losses and norms, bit for
// bit. Not of a mixture.
//
// INTERNAL: they have not. FAILED_PRECONDITION: `ops` does not replay, or gave
// it up; the message says why.
absl::Status CheckReplay(const ModelCase& model_case, uint64_t seed, Ops& ops);

}  // namespace atl::engine::check

#endif  // WORKER_ENGINE_CUDA_CHECK_MODEL_CHECK_H_
