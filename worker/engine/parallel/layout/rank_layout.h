// The part of a model that one rank of a mesh computes with, and the part of it
// that the rank keeps. Pure: a function of model, mesh and rank, so each rank
// knows it for every other. Thread-safe.
//
// A rank has the units (model/units.h) of its pipeline stages, each as a flat
// span: the whole unit, or the rank's slices of its matrices. In a unit, dense
// parameters precede experts. Each of the two is a span that a group of ranks
// may share:
//
//   c  elements of the span
//   g  ranks that share it; 1 if each has it whole (ShardingMode::kReplicate)
//   s  elements of a shard: c / g, rounded up to kShardAlignment
//   shard r: elements [r s, (r + 1) s) of the span, zeros past c
//
// So one all-gather of equal parts gathers a span. A rank's shards follow each
// other in its optimizer's "state order".
//
// Stages are cut from the list of all units to minimize the largest cost. If
// the head of a tied model is not on the embedding's rank, the head's rank has
// a copy of the embedding's unit after its own units. Both ranks contribute
// gradients to it and update it alike.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "worker/engine/model/local_layout.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/model/unit_slice.h"
#include "worker/engine/parallel/layout/mesh_options.h"

namespace atl::engine {

// 64 bytes of f32: no two ranks write the same cache line.
inline constexpr int64_t kShardAlignment = 16;
// `count`, rounded up to it.
constexpr int64_t AlignShard(int64_t count) {
  return (count + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
}

struct UnitParameter {
  int64_t begin = 0;  // In the rank's unit.
  int64_t count = 0;
  ParameterClass parameter_class = ParameterClass::kMatrix;
  // Another rank that differs only in tp holds the same elements and is first.
  bool is_copy = false;
  // Cover the parameter once; local_begin is also in the rank's unit.
  std::vector<Rectangle> rectangles;
};

struct RankUnit {
  int unit = 0;  // In ParameterLayout::units.
  int64_t dense_count = 0;
  int64_t expert_count = 0;               // After the dense ones.
  std::vector<UnitParameter> parameters;  // Rising in begin, without gaps.
  // A copy of the embedding, for a tied head on another rank.
  bool is_table_copy = false;
  int first_span = 0;  // In RankLayout::spans.
  int span_count = 0;

  int64_t element_count() const { return dense_count + expert_count; }
};

// A part of a unit that a group shares.
struct ShardSpan {
  int rank_unit = 0;  // In RankLayout::units.
  bool is_expert = false;
  int64_t begin = 0;   // In the rank's unit.
  int64_t count = 0;   // c
  int group_size = 1;  // g
  int group_rank = 0;
  int64_t shard_count = 0;  // s
  int64_t state_begin = 0;  // Start of the shard in state order.
  // Another rank holds the same shard and is first.
  bool is_copy = false;

  int64_t gathered_count() const { return group_size * shard_count; }
};

struct RankLayout {
  LocalLayout local;  // The rank's slice of all units of the model.
  std::vector<RankUnit> units;
  std::vector<ShardSpan> spans;
  // The rank's stages, by chunk: units [begin, end).
  struct Chunk {
    int stage = 0;
    int begin = 0;
    int end = 0;
  };
  std::vector<Chunk> chunks;
  int stage_count = 1;  // Stages of the whole pipeline.
  // Indices in `units`; -1: on another rank. `table`: the tied head's table.
  int embedding = -1;
  int head = -1;
  int table = -1;
  // A tied table's gradient is summed with another rank's.
  bool shares_table = false;
  int64_t state_count = 0;  // Sum of shard_count.
};

// The rank's coordinates in tp, cp and ep.
UnitSlice MakeSlice(const Mesh& mesh, int rank);

// `options` must pass ValidateMeshTrainer.
RankLayout MakeRankLayout(const ModelConfig& config, const MeshOptions& options,
                          int rank);

// Boundaries of the stages in the list of all units, stage_count + 1.
// INVALID_ARGUMENT: more stages than layers.
absl::StatusOr<std::vector<int>> SplitStages(const ModelConfig& config,
                                             int stage_count);

// Consecutive elements of a shard with the same class and is_counted. A norm
// adds one sum per segment: where they end decides its rounding.
struct StateSegment {
  int span = 0;
  int64_t shard_offset = 0;
  int64_t count = 0;
  ParameterClass parameter_class = ParameterClass::kMatrix;
  // This rank counts these elements in norms and saves; no other rank does.
  bool is_counted = true;
};

// Returns the segments of all state that the rank keeps, without padding, in
// state order. Adjacent equal segments are merged.
std::vector<StateSegment> ListStateSegments(const RankLayout& layout);

// Elements of the model that are contiguous in a shard.
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
