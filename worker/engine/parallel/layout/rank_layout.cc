#include "worker/engine/parallel/layout/rank_layout.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status/check.h"
#include "worker/engine/parallel/layout/mesh.h"
#include "worker/engine/parallel/layout/pipeline_schedule.h"

namespace atl::engine {
namespace {

RankUnit MakeUnit(const LocalLayout& local, int unit) {
  RankUnit result{.unit = unit,
                  .dense_count = local.units[unit].dense_count,
                  .expert_count = local.units[unit].expert_count};
  const int64_t base = local.units[unit].span.begin;
  for (size_t i = 0; i < local.parameters.size(); ++i) {
    const ParameterSpec& spec = local.layout.parameters[i];
    if (spec.unit != unit) continue;
    UnitParameter parameter{
        .begin = spec.offset - base,
        .count = spec.element_count,
        .parameter_class = spec.parameter_class,
        .is_copy = !local.parameters[i].cut_by_tp && local.slice.tp_rank > 0,
        .rectangles = local.parameters[i].rectangles};
    for (Rectangle& rectangle : parameter.rectangles) {
      rectangle.local_begin -= base;
    }
    result.parameters.push_back(std::move(parameter));
  }
  return result;
}

class Builder {
 public:
  Builder(const ModelConfig& config, const MeshOptions& options, int rank)
      : config_(config), options_(options), rank_(rank) {}

  RankLayout Build() {
    const Mesh& mesh = options_.mesh;
    result_.local = MakeLocalLayout(config_, MakeSlice(mesh, rank_));
    const int pp = mesh.size(MeshDimension::kPp);
    const int stage_of_chunk_0 = mesh.Coordinate(rank_, MeshDimension::kPp);
    result_.stage_count = pp * options_.chunk_count;
    const auto stages = SplitStages(config_, result_.stage_count);
    CHECK(stages.ok()) << stages.status().message();
    const int unit_count = static_cast<int>(result_.local.units.size());
    for (int chunk = 0; chunk < options_.chunk_count; ++chunk) {
      const int stage = chunk * pp + stage_of_chunk_0;
      const int begin = static_cast<int>(result_.units.size());
      for (int unit = (*stages)[stage]; unit < (*stages)[stage + 1]; ++unit) {
        const int at = Add(MakeUnit(result_.local, unit));
        if (unit == 0) result_.embedding = at;
        if (unit == unit_count - 1) result_.head = at;
      }
      result_.chunks.push_back(
          {stage, begin, static_cast<int>(result_.units.size())});
    }
    if (!config_.tie_embeddings) return std::move(result_);
    result_.shares_table = (result_.embedding < 0) != (result_.head < 0);
    if (result_.head >= 0) {
      result_.table =
          result_.embedding >= 0 ? result_.embedding : AddTableCopy();
    }
    return std::move(result_);
  }

 private:
  int Add(RankUnit unit) {
    const int at = static_cast<int>(result_.units.size());
    unit.first_span = static_cast<int>(result_.spans.size());
    for (const bool is_expert : {false, true}) {
      const int64_t count = is_expert ? unit.expert_count : unit.dense_count;
      if (count == 0) continue;
      ++unit.span_count;
      result_.spans.push_back(MakeSpan(at, is_expert,
                                       is_expert ? unit.dense_count : 0, count,
                                       unit.is_table_copy));
      result_.state_count += result_.spans.back().shard_count;
    }
    result_.units.push_back(std::move(unit));
    return at;
  }

  int AddTableCopy() {
    RankUnit copy = MakeUnit(result_.local, 0);
    copy.is_table_copy = true;
    return Add(std::move(copy));
  }

  ShardSpan MakeSpan(int unit, bool is_expert, int64_t begin, int64_t count,
                     bool is_table_copy) const {
    const Mesh& mesh = options_.mesh;
    const MeshDimensions group = is_expert ? kExpertShardGroup : kShardGroup;
    ShardSpan span{.rank_unit = unit,
                   .is_expert = is_expert,
                   .begin = begin,
                   .count = count,
                   .state_begin = result_.state_count,
                   .is_copy = is_table_copy};
    int place = mesh.RankIn(rank_, MeshDimension::kDpReplicate);
    if (options_.sharding == ShardingMode::kReplicate) {
      place += mesh.RankIn(rank_, group);
    } else {
      span.group_size = mesh.size(group);
      span.group_rank = mesh.RankIn(rank_, group);
    }
    span.is_copy |= place > 0;
    const int64_t share = (count + span.group_size - 1) / span.group_size;
    span.shard_count = AlignShard(share);
    return span;
  }

  const ModelConfig& config_;
  const MeshOptions& options_;
  const int rank_;
  RankLayout result_;
};

// A rank's elements of `span`, in the unit.
Range MakeOwned(const ShardSpan& span) {
  const int64_t begin =
      span.begin + std::min(span.count, span.group_rank * span.shard_count);
  return {begin, std::min(begin + span.shard_count, span.begin + span.count)};
}

}  // namespace

absl::StatusOr<std::vector<int>> SplitStages(const ModelConfig& config,
                                             int stage_count) {
  if (stage_count > config.layer_count) {
    return absl::InvalidArgumentError(
        absl::StrCat(stage_count, " pipeline stages are more than the ",
                     config.layer_count, " layers"));
  }
  // Multiplications per token. The lookup of an embedding has none, but its
  // gradient and memory cost something.
  const double channels = static_cast<double>(config.hidden_size);
  const double inner = static_cast<double>(config.intermediate_size);
  double block = channels * static_cast<double>(config.qkv_size()) +
                 channels * channels +
                 channels * static_cast<double>(config.sequence_length_max);
  if (config.is_mixture()) {
    block +=
        3 * channels * inner * static_cast<double>(config.experts_per_token);
  } else {
    block += (config.is_gpt2() ? 2 : 3) * channels * inner;
  }
  std::vector<double> costs(config.layer_count + 2, block);
  costs.front() = block / 16;
  costs.back() = channels * static_cast<double>(config.vocab_size);
  return SplitLayers(costs, stage_count);
}

UnitSlice MakeSlice(const Mesh& mesh, int rank) {
  return {.tp_size = mesh.size(MeshDimension::kTp),
          .tp_rank = mesh.Coordinate(rank, MeshDimension::kTp),
          .cp_size = mesh.size(MeshDimension::kCp),
          .cp_rank = mesh.Coordinate(rank, MeshDimension::kCp),
          .ep_size = mesh.size(MeshDimension::kEp),
          .ep_rank = mesh.Coordinate(rank, MeshDimension::kEp)};
}

RankLayout MakeRankLayout(const ModelConfig& config, const MeshOptions& options,
                          int rank) {
  return Builder(config, options, rank).Build();
}

std::vector<StateSegment> ListStateSegments(const RankLayout& layout) {
  std::vector<StateSegment> segments;
  for (size_t i = 0; i < layout.spans.size(); ++i) {
    const ShardSpan& span = layout.spans[i];
    const Range owned = MakeOwned(span);
    bool is_first = true;
    for (const UnitParameter& parameter :
         layout.units[span.rank_unit].parameters) {
      const int64_t begin = std::max(owned.begin, parameter.begin);
      const int64_t end =
          std::min(owned.end, parameter.begin + parameter.count);
      if (begin >= end) continue;
      const bool is_counted = !span.is_copy && !parameter.is_copy;
      if (!is_first &&
          segments.back().parameter_class == parameter.parameter_class &&
          segments.back().is_counted == is_counted) {
        segments.back().count += end - begin;
        continue;
      }
      is_first = false;
      segments.push_back({.span = static_cast<int>(i),
                          .shard_offset = begin - owned.begin,
                          .count = end - begin,
                          .parameter_class = parameter.parameter_class,
                          .is_counted = is_counted});
    }
  }
  return segments;
}

void ForEachShardRun(const RankLayout& layout,
                     absl::FunctionRef<void(const ShardRun&)> f) {
  for (size_t i = 0; i < layout.spans.size(); ++i) {
    const ShardSpan& span = layout.spans[i];
    const Range owned = MakeOwned(span);
    for (const UnitParameter& parameter :
         layout.units[span.rank_unit].parameters) {
      if (parameter.begin >= owned.end ||
          parameter.begin + parameter.count <= owned.begin) {
        continue;
      }
      for (const Rectangle& rectangle : parameter.rectangles) {
        for (int64_t row = 0; row < rectangle.row_count; ++row) {
          const int64_t local =
              rectangle.local_begin + row * rectangle.local_stride;
          const int64_t begin = std::max(owned.begin, local);
          const int64_t end =
              std::min(owned.end, local + rectangle.column_count);
          if (begin >= end) continue;
          f({.span = static_cast<int>(i),
             .shard_offset = begin - owned.begin,
             .global_begin = rectangle.global_begin +
                             row * rectangle.global_stride + (begin - local),
             .count = end - begin,
             .is_counted = !span.is_copy && !parameter.is_copy});
        }
      }
    }
  }
}

}  // namespace atl::engine
