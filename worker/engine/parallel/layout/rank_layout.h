// What one rank of a mesh computes with, and what of it the rank keeps.
//
// Pure: a function of model, mesh and rank, so that every rank knows it of
// every other. Thread-safe.
//
// A rank has the units (model/units.h) of its pipeline stages, each as a flat
// span of its own: the whole unit, or the rank's slices of its matrices. Within
// the unit what is not an expert's comes first, then experts. Either part is a
// span of so many elements, which a group of ranks may share:
//
//   c  elements of the span
//   g  ranks that share it; 1 if each has it whole (ShardingMode::kReplicate)
//   s  elements of a shard: c / g, rounded up to kShardAlignment
//   shard r: elements [r s, (r + 1) s) of the span, zeros past c
//
// so that a gathered span is one all-gather of equal parts. A rank's shards lie
// one after the other in what it keeps for its optimizer, in "state order".
//
// Stages are cut from the list of all units so that the costliest costs least.
// If the embedding is tied and the head is on another rank, that rank has a
// copy of the embedding's unit behind its own: both give gradients for it and
// both update it alike.

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "worker/engine/model/local_layout.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/parallel/layout/mesh_options.h"

namespace atl::engine {

// 64 bytes of f32: no two ranks write one cache line.
inline constexpr int64_t kShardAlignment = 16;

// A parameter, or the rank's part of it, in the rank's unit.
struct UnitParameter {
  int64_t begin = 0;  // In the rank's unit.
  int64_t count = 0;
  ParameterClass parameter_class = ParameterClass::kMatrix;
  // Ranks that differ in tp alone hold the same elements, and this one is not
  // the first of them.
  bool is_copy = false;
  // They cover it once; local_begin is in the rank's unit too.
  std::vector<Rectangle> rectangles;
};

// A unit as a rank computes with it.
struct RankUnit {
  int unit = 0;  // In ParameterLayout::units.
  int64_t dense_count = 0;
  int64_t expert_count = 0;               // Behind the dense ones.
  std::vector<UnitParameter> parameters;  // Rising in begin, without gaps.
  // The embedding again, for a tied head on another rank than its own.
  bool is_table_copy = false;
  int first_span = 0;  // In RankLayout::spans.
  int span_count = 0;

  int64_t element_count() const { return dense_count + expert_count; }
};

// What a group shares of a unit.
struct ShardSpan {
  int rank_unit = 0;  // In RankLayout::units.
  bool is_expert = false;
  int64_t begin = 0;   // In the rank's unit.
  int64_t count = 0;   // c
  int group_size = 1;  // g
  int group_rank = 0;
  int64_t shard_count = 0;  // s
  int64_t state_begin = 0;  // Of the shard, in state order.
  // Other ranks hold the same shard, and this one is not the first of them.
  bool is_copy = false;

  int64_t gathered_count() const { return group_size * shard_count; }
};

struct RankLayout {
  LocalLayout local;  // Of the rank's slice, all units of the model.
  std::vector<RankUnit> units;
  std::vector<ShardSpan> spans;
  // The rank's stages: units [begin, end) each, by chunk.
  struct Chunk {
    int stage = 0;
    int begin = 0;
    int end = 0;
  };
  std::vector<Chunk> chunks;
  int stage_count = 1;  // Of the pipeline.
  // In `units`; -1: on another rank. `table` is the unit that a tied head's
  // table lies in.
  int embedding = -1;
  int head = -1;
  int table = -1;
  // A tied table's gradient is summed with that of another rank.
  bool shares_table = false;
  int64_t state_count = 0;  // The sum of shard_count.
};

// The rank's place in tp, cp and ep.
UnitSlice MakeSlice(const Mesh& mesh, int rank);

// Options pass ValidateMeshTrainer.
RankLayout MakeRankLayout(const ModelConfig& config, const MeshOptions& options,
                          int rank);

// Boundaries of the stages in the list of all units, stage_count + 1.
//
// INVALID_ARGUMENT: more stages than layers.
absl::StatusOr<std::vector<int>> SplitStages(const ModelConfig& config,
                                             int stage_count);

// A part of a shard that is treated alike.
struct StateSegment {
  int span = 0;
  int64_t shard_offset = 0;
  int64_t count = 0;
  ParameterClass parameter_class = ParameterClass::kMatrix;
  // No other rank counts these elements: in a norm, and when they are saved.
  bool is_counted = true;
};

// All that the rank keeps but padding, in state order; neighbours that are
// treated alike are one.
std::vector<StateSegment> ListStateSegments(const RankLayout& layout);

// Elements of the model that lie together in a shard.
struct ShardRun {
  int span = 0;
  int64_t shard_offset = 0;
  int64_t global_begin = 0;
  int64_t count = 0;
  bool is_counted = true;
};

// Calls `f` with all runs of the rank's shards, in any order.
void ForEachShardRun(const RankLayout& layout,
                     absl::FunctionRef<void(const ShardRun&)> f);

}  // namespace atl::engine
