#include "cli/run_file/rules.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/layout/external_model.h"
#include "base/layout/run_bounds.h"
#include "base/layout/run_timing.h"
#include "base/layout/weight_unit.h"

namespace atl::cli {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Which end of a range is excluded.
enum Ends { kClosed, kOpenBelow, kOpenAbove };

struct Range {
  absl::string_view path;
  double low;
  double high;
  Ends ends = kClosed;
};

// From the comments of proto/atoll/v1/run.proto.
constexpr Range kRanges[] = {
    {"checkpoint.every_round_count", 0, kInfinity},
    {"checkpoint.keep_count", 1, 32},
    {"checkpoint_every_round_count", 0, kInfinity},
    {"data.data_shard_count", 0, 1 << 20},
    {"data.validation_fraction", 0, 1, kOpenAbove},
    {"evaluation.batch_count", 1, 1 << 20},
    {"evaluation.every_round_count", 0, kInfinity},
    {"exchange.error_feedback_decay", 0, 1},
    {"history.keep_round_count", 0, kInfinity},
    {"inner.batch_size", 1, 1 << 20},
    {"inner.beta1", 0, 1, kOpenAbove},
    {"inner.beta2", 0, 1, kOpenAbove},
    {"inner.clip_norm", 0, kInfinity},
    {"inner.epsilon", 0, kInfinity, kOpenBelow},
    {"inner.final_learning_rate_fraction", 0, 1},
    {"inner.learning_rate", 0, kInfinity, kOpenBelow},
    {"inner.warmup_step_count", 0, kInfinity},
    {"inner.save_every_syncs", 0, kInfinity},
    {"inner.weight_decay", 0, kInfinity},
    {"layout.fragment_count", 1, kFragmentsMax},
    {"model.expert_capacity_factor", 0, kInfinity},
    {"model.expert_count", 0, 1024},
    {"model.experts_per_token", 0, 16},
    {"model.head_count", 1, 1 << 16},
    {"model.hidden_size", 1, 1 << 24},
    {"model.intermediate_size", 1, 1 << 24},
    {"model.kv_head_count", 0, 1 << 16},
    {"model.layer_count", 1, 1 << 16},
    {"model.rms_norm_eps", 0, 1, kOpenBelow},
    {"model.router_loss_weight", 0, kInfinity},
    {"model.rope_theta", 0, kInfinity, kOpenBelow},
    {"model.sequence_length", 1, 1 << 24},
    {"model.vocab_size", 2, 1 << 24},
    {"outer.beta1", 0, 1, kOpenAbove},
    {"outer.beta2", 0, 1, kOpenAbove},
    {"outer.buffer_count", 0, 1 << 16},
    {"outer.contribution_norm_max", 0, kInfinity},
    {"outer.enrolled_norm_factor", 0, 1e6},
    {"outer.learning_rate", 0, kInfinity, kOpenBelow},
    {"outer.merge.byzantine_count", 0, 1 << 16},
    {"outer.merge.clip_factor", 0, kInfinity},
    {"outer.merge.clip_round_count", 0, 64},
    {"outer.merge.iteration_count", 0, 64},
    {"outer.merge.selected_count", 0, 1 << 16},
    {"outer.momentum", 0, 1, kOpenAbove},
    {"outer.momentum_share", 0, 1},
    {"outer.tau", 0, kInfinity, kOpenBelow},
    {"schedule.blend", 0, 1},
    {"schedule.inner_step_count", 1, kInfinity},
    {"schedule.island_count_min", 1, kIslandsMax},
    {"schedule.max_ahead_steps", 0, kInfinity},
    {"schedule.max_staleness", 0, kInfinity},
    {"schedule.min_quorum", 0, kIslandsMax},
    {"schedule.overlap_step_count", 0, kInfinity},
    {"schedule.round_count", 1, kInfinity},
    {"schedule.sample_fraction", 0, 1},
    {"schedule.token_count", 1, kInfinity},
    {"server_count", 1, kServersMax},
};

// The most tokens that a sample may count, where the file does not say it: no
// limit in practice.
constexpr int32_t kSequenceLength = 1 << 20;

constexpr absl::string_view kRead[] = {
    "model.architecture", "model.sequence_length",   "model.tensors",
    "inner.batch_size",   "inner.warmup_step_count", "inner.save_every_syncs",
    "data.format",        "data.data_shard_count",
};

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
  // Clears defaults that the chosen optimizers do not use.
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
  // Fills in defaults that follow from other values.
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

std::string RangeFault(absl::string_view path, double value) {
  if (!std::isfinite(value)) return "must be finite";
  for (const Range& range : kRanges) {
    if (range.path != path) continue;
    if (range.ends == kOpenBelow && value <= range.low) {
      return absl::StrCat("must be greater than ", range.low, ", is ", value);
    }
    if (value < range.low) {
      return absl::StrCat("must be at least ", range.low, ", is ", value);
    }
    if (range.ends == kOpenAbove && value >= range.high) {
      return absl::StrCat("must be less than ", range.high, ", is ", value);
    }
    if (value > range.high) {
      return absl::StrCat("must be at most ", range.high, ", is ", value);
    }
  }
  return "";
}

void DropOtherData(const std::set<std::string>& own, v1::DataSpec* data) {
  if (own.count("data.url") == 0) return;
  const auto is_own = [&](const std::string& key) {
    return own.count("data." + key) != 0;
  };
  if (!is_own("path")) data->clear_path();
  if (!is_own("format")) data->clear_format();
  if (!is_own("fingerprint")) data->clear_fingerprint();
  if (!is_own("seed")) data->clear_seed();
  if (!is_own("validation_fraction")) data->clear_validation_fraction();
}

void DropOtherRounds(const std::set<std::string>& own,
                     v1::ScheduleSpec* schedule) {
  const auto is_own = [&](const std::string& key) {
    return own.count("schedule." + key) != 0;
  };
  if (is_own("timing") && schedule->timing() == v1::TIMING_STRICT) {
    if (!is_own("grace_window")) schedule->clear_grace_window();
    if (!is_own("round_deadline")) schedule->clear_round_deadline();
    if (!is_own("max_ahead_steps")) schedule->clear_max_ahead_steps();
    if (!is_own("max_staleness")) schedule->clear_max_staleness();
  }
  if (is_own("island_count_min") && !is_own("min_quorum") &&
      schedule->min_quorum() > schedule->island_count_min()) {
    schedule->clear_min_quorum();
  }
}

std::vector<std::string> FindDataFaults(const v1::DataSpec& data) {
  std::vector<std::string> faults;
  if (data.url().empty()) {
    if (data.order() == v1::DATA_ORDER_BY_FILE) {
      faults.push_back(
          "'data.order' \"by_file\" needs data.url: a manifest gives the order "
          "of the files");
    }
    return faults;
  }
  if (!data.path().empty()) {
    faults.push_back(
        "'data.url' and 'data.path' exclude each other: leave one out");
  }
  if (data.order() != v1::DATA_ORDER_BY_FILE) {
    faults.push_back(
        "'data.order' must be \"by_file\" with data.url: islands fetch one "
        "file after another");
  }
  if (data.validation_fraction() != 0) {
    faults.push_back(
        "'data.validation_fraction' is not read with data.url: the manifest "
        "says which files are held out; leave it out");
  }
  if (data.seed() != 0) {
    faults.push_back(
        "'data.seed' is not read with data.url: files are read in the "
        "manifest's order; leave it out");
  }
  return faults;
}

std::string ExternalKeyFault(absl::string_view key) {
  if (std::find(std::begin(kRead), std::end(kRead), key) != std::end(kRead)) {
    return "";
  }
  std::string why;
  if (absl::StartsWith(key, "model.")) {
    why = "only the trainer knows an external model";
  } else if (absl::StartsWith(key, "inner.")) {
    why = "the trainer of an external model has its own optimizer";
  } else if (absl::StartsWith(key, "data.")) {
    why = "the trainer of an external model reads the data";
  } else if (key == "layout.layers_a_fragment" ||
             key == "layout.fragment_pattern") {
    return absl::StrCat("'", key,
                        "' is about layers, and only the trainer knows those "
                        "of an external model: give layout.fragment_count");
  } else {
    return "";
  }
  return absl::StrCat("'", key, "' is not read: ", why, "; leave it out");
}

std::string WeightUnitFault(const std::set<std::string>& own,
                            v1::WeightUnit unit) {
  if (WeightUnitOf(unit) == v1::WEIGHT_UNIT_TOKENS) return "";
  if (own.count("model.sequence_length") != 0) {
    return absl::StrCat("'model.sequence_length' is not read with weight_unit "
                        "\"",
                        WeightUnitName(unit), "\": leave it out");
  }
  if (unit == v1::WEIGHT_UNIT_SAMPLES && own.count("inner.batch_size") == 0) {
    return "'inner.batch_size' is missing: weight_unit is \"samples\", and a "
           "step counts at most this many samples";
  }
  return "";
}

void MakeExternal(const std::set<std::string>& own, v1::RunSpec* spec) {
  v1::ModelSpec model;
  model.set_architecture(kExternalArchitecture);
  if (WeightUnitOf(spec->weight_unit()) != v1::WEIGHT_UNIT_TOKENS) {
    model.set_sequence_length(1);  // Not read.
  } else {
    model.set_sequence_length(own.count("model.sequence_length") != 0
                                  ? spec->model().sequence_length()
                                  : kSequenceLength);
  }
  *spec->mutable_model() = model;
  v1::InnerSpec inner;
  inner.set_batch_size(
      own.count("inner.batch_size") != 0 ? spec->inner().batch_size() : 1);
  inner.set_warmup_step_count(spec->inner().warmup_step_count());
  inner.set_save_every_syncs(spec->inner().save_every_syncs());
  *spec->mutable_inner() = inner;
  v1::DataSpec data;
  data.set_format(v1::DATA_FORMAT_EXTERNAL);
  data.set_data_shard_count(spec->data().data_shard_count());
  *spec->mutable_data() = data;
  if (spec->outer().weighting() == v1::WEIGHTING_SAMPLES &&
      own.count("outer.weighting") == 0) {
    spec->mutable_outer()->set_weighting(v1::WEIGHTING_TOKENS);
  }
}

}  // namespace atl::cli
