#include "cli/run_file/range.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

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
    {"layout.fragment_count", 1, 1 << 16},
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
    {"schedule.island_count_min", 1, 1 << 16},
    {"schedule.max_ahead_steps", 0, kInfinity},
    {"schedule.max_staleness", 0, kInfinity},
    {"schedule.min_quorum", 0, 1 << 16},
    {"schedule.overlap_step_count", 0, kInfinity},
    {"schedule.round_count", 1, kInfinity},
    {"schedule.sample_fraction", 0, 1},
    {"schedule.token_count", 1, kInfinity},
    {"server_count", 1, 1 << 12},
};

}  // namespace

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

}  // namespace atl::cli
