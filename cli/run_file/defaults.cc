#include "cli/run_file/defaults.h"

#include "base/layout/run_timing.h"

namespace atl::cli {
namespace {

// Clears defaults that the chosen optimizers do not use.
void DropUnread(const std::set<std::string>& given, v1::RunSpec* spec) {
  if (spec->inner().optimizer() == v1::INNER_OPTIMIZER_KIND_SGD &&
      given.count("inner.weight_decay") == 0) {
    spec->mutable_inner()->set_weight_decay(0);
  }
  const v1::OuterOptimizerKind outer = spec->outer().optimizer();
  if (outer != v1::OUTER_OPTIMIZER_KIND_MOMENTUM &&
      outer != v1::OUTER_OPTIMIZER_KIND_NESTEROV &&
      outer != v1::OUTER_OPTIMIZER_KIND_FEDAVGM &&
      outer != v1::OUTER_OPTIMIZER_KIND_DELAYED_NESTEROV &&
      given.count("outer.momentum") == 0) {
    spec->mutable_outer()->set_momentum(0);
  }
}

// Fills in defaults that follow from other values.
void FillIn(const std::set<std::string>& given, v1::RunSpec* spec) {
  v1::ModelSpec& model = *spec->mutable_model();
  if (model.kv_head_count() == 0) model.set_kv_head_count(model.head_count());
  if (model.architecture() == "gpt2") {
    if (model.intermediate_size() == 0 && model.hidden_size() < (1 << 24)) {
      model.set_intermediate_size(4 * model.hidden_size());
    }
    if (given.count("model.tie_embeddings") == 0) {
      model.set_tie_embeddings(true);
    }
  }
  if (model.architecture() == "mixtral" &&
      given.count("model.router_loss_weight") == 0) {
    model.set_router_loss_weight(0.001);
  }
  v1::ScheduleSpec& schedule = *spec->mutable_schedule();
  if (IsAsync(schedule)) {
    // An async version merges one contribution.
    if (schedule.min_quorum() == 0) schedule.set_min_quorum(1);
    if (given.count("outer.weighting") == 0) {
      spec->mutable_outer()->set_weighting(v1::WEIGHTING_UNIFORM);
    }
  }
  if (schedule.min_quorum() == 0) {
    schedule.set_min_quorum(schedule.island_count_min());
  }
  if (spec->data().data_shard_count() == 0) {
    spec->mutable_data()->set_data_shard_count(schedule.island_count_min());
  }
}

}  // namespace

v1::RunSpec DefaultRunSpec() {
  v1::RunSpec spec;
  spec.mutable_layout()->set_fragment_count(1);
  spec.mutable_init()->set_seed(1);
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_architecture("llama");
  model.set_rope_theta(10000);
  model.set_rms_norm_eps(1e-5);
  v1::InnerSpec& inner = *spec.mutable_inner();
  inner.set_optimizer(v1::INNER_OPTIMIZER_KIND_ADAMW);
  inner.set_learning_rate(1e-3);
  inner.set_beta1(0.9);
  inner.set_beta2(0.95);
  inner.set_epsilon(1e-8);
  inner.set_weight_decay(0.1);
  inner.set_clip_norm(1);
  inner.set_final_learning_rate_fraction(0.1);
  inner.set_batch_size(8);
  inner.set_seed(1);
  v1::OuterSpec& outer = *spec.mutable_outer();
  outer.set_optimizer(v1::OUTER_OPTIMIZER_KIND_NESTEROV);
  outer.set_learning_rate(0.7);
  outer.set_momentum(0.9);
  outer.set_beta1(0.9);
  outer.set_beta2(0.99);
  outer.set_tau(1e-3);
  outer.set_weighting(v1::WEIGHTING_TOKENS);
  v1::ScheduleSpec& schedule = *spec.mutable_schedule();
  schedule.set_timing(v1::TIMING_STRICT);
  schedule.set_island_count_min(1);
  schedule.set_sample_fraction(1);
  schedule.mutable_lease_duration()->set_seconds(30);
  v1::DataSpec& data = *spec.mutable_data();
  data.set_format(v1::DATA_FORMAT_BYTES);
  data.set_seed(1);
  data.set_validation_fraction(0.05);
  spec.mutable_evaluation()->set_every_round_count(1);
  spec.mutable_evaluation()->set_batch_count(20);
  spec.set_durability(v1::DURABILITY_MACHINE);
  spec.set_server_count(1);
  return spec;
}

void FillInDefaults(const std::set<std::string>& given, v1::RunSpec* spec) {
  DropUnread(given, spec);
  FillIn(given, spec);
}

}  // namespace atl::cli
