#include "worker/island/testing/tiny_run.h"

#include <fstream>
#include <random>

#include "worker/planner/model_spec.h"

namespace atl::worker {

v1::RunSpec TinyRun(const TinyRunOptions& options) {
  v1::RunSpec spec;
  v1::ModelSpec* model = spec.mutable_model();
  model->set_architecture("llama");
  model->set_vocab_size(256);
  model->set_hidden_size(32);
  model->set_intermediate_size(48);
  model->set_layer_count(options.layer_count);
  model->set_head_count(4);
  model->set_kv_head_count(2);
  model->set_sequence_length(16);
  model->set_rope_theta(10000);
  model->set_rms_norm_eps(1e-5);
  *spec.mutable_layout() = *BuildLayout(*model, options.fragment_count);
  spec.mutable_init()->set_seed(11);
  v1::InnerSpec* inner = spec.mutable_inner();
  inner->set_optimizer(options.adamw ? v1::INNER_OPTIMIZER_KIND_ADAMW
                                     : v1::INNER_OPTIMIZER_KIND_SGD);
  inner->set_learning_rate(options.adamw ? 3e-3 : 0.1);
  inner->set_beta1(0.9);
  inner->set_beta2(0.95);
  inner->set_epsilon(1e-8);
  if (options.adamw) inner->set_weight_decay(0.1);
  inner->set_clip_norm(1);
  inner->set_warmup_step_count(2);
  inner->set_final_learning_rate_fraction(0.1);
  inner->set_batch_size(4);
  inner->set_seed(5);
  v1::OuterSpec* outer = spec.mutable_outer();
  outer->set_optimizer(v1::OUTER_OPTIMIZER_KIND_SGD);
  outer->set_learning_rate(1);
  outer->set_weighting(v1::WEIGHTING_UNIFORM);
  v1::ScheduleSpec* schedule = spec.mutable_schedule();
  schedule->set_timing(v1::TIMING_STRICT);
  schedule->set_inner_step_count(options.inner_step_count);
  schedule->set_round_count(options.round_count);
  schedule->set_island_count_min(options.island_count);
  schedule->set_min_quorum(options.island_count);
  v1::DataSpec* data = spec.mutable_data();
  data->set_format(v1::DATA_FORMAT_BYTES);
  data->set_path(options.data_path);
  data->set_validation_fraction(0.1);
  data->set_data_shard_count(options.island_count);
  spec.mutable_evaluation()->set_every_round_count(1);
  spec.mutable_evaluation()->set_batch_count(2);
  spec.set_server_count(1);
  return spec;
}

std::string WriteTinyText(const std::string& directory, uint64_t seed,
                          int64_t size_bytes) {
  const std::string path = directory + "/text_" + std::to_string(seed) + ".txt";
  std::mt19937_64 random(seed);
  std::string text;
  const char* const words[] = {"island ", "server ", "outer ", "inner ",
                               "round ",  "merge ",  "push ",  "pull\n"};
  while (static_cast<int64_t>(text.size()) < size_bytes) {
    text += words[random() % 8];
  }
  text.resize(size_bytes);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

}  // namespace atl::worker
