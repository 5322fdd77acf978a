#include "worker/engine/model/workspace.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"

namespace atl::engine {
namespace {

constexpr int64_t kLogitRowsMin = 256;

// Sequences of sequence_length_max of which a rank's `rows` are parts.
int64_t SequenceCountMax(const ModelConfig& config, const UnitSlice& slice,
                         int64_t rows) {
  const int64_t length = config.sequence_length_max / slice.cp_size;
  return (rows + length - 1) / length;
}

}  // namespace

int64_t ExpertCapacity(const ModelConfig& config) {
  const int64_t rows = config.sequence_length_max;
  if (config.expert_capacity_factor <= 0) return rows;
  const double share = config.expert_capacity_factor *
                       static_cast<double>(rows * config.experts_per_token) /
                       static_cast<double>(config.expert_count);
  if (share >= static_cast<double>(rows)) return rows;
  return static_cast<int64_t>(std::ceil(share));
}

int64_t ExpertRowsMax(const ModelConfig& config, const UnitSlice& slice,
                      int64_t rows) {
  const int64_t experts = config.expert_count / slice.ep_size;
  const int64_t chosen = rows * std::min(config.experts_per_token, experts);
  if (slice.ep_size == 1) return chosen;
  const int64_t length = config.sequence_length_max / slice.cp_size;
  const int64_t taken = SequenceCountMax(config, slice, rows) * experts *
                        std::min(length, ExpertCapacity(config));
  return slice.ep_size * std::min(chosen, taken);
}

template <typename T>
absl::StatusOr<std::unique_ptr<Workspace<T>>> Workspace<T>::Create(
    const ModelConfig& config, const UnitSlice& slice, const UnitGroups& groups,
    int64_t rows_max, BasicOps<T>& ops) {
  std::unique_ptr<Workspace> workspace(
      new Workspace(config, slice, groups, rows_max, ops));
  RETURN_IF_ERROR(workspace->CheckGroups());
  ASSIGN_OR_RETURN(
      workspace->arena_,
      Arena::CreateFor([&](Arena& arena) { workspace->TakeBuffers(arena); },
                       ops.memory()));
  if (workspace->rope_table != nullptr) workspace->FillRopeTable();
  return workspace;
}

template <typename T>
absl::Status Workspace<T>::CheckGroups() const {
  const auto check = [](const char* name, const collective::Collective* group,
                        int size, int rank) -> absl::Status {
    if (group == nullptr ? size == 1
                         : group->size() == size && group->rank() == rank) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "the group of ", name, " must have this rank as ", rank, " of ", size));
  };
  RETURN_IF_ERROR(check("tp", groups.tp, slice.tp_size, slice.tp_rank));
  RETURN_IF_ERROR(check("cp", groups.cp, slice.cp_size, slice.cp_rank));
  return check("ep", groups.ep, slice.ep_size, slice.ep_rank);
}

template <typename T>
int64_t Workspace<T>::LogitRowsMax() const {
  const int64_t columns = FindVocabulary(config, slice).size();
  const int64_t rows =
      ops.logit_run_elements() / columns / kLogitRowsMin * kLogitRowsMin;
  return std::min(rows_max, std::max(kLogitRowsMin, rows));
}

template <typename T>
void Workspace<T>::TakeBuffers(Arena& arena) {
  const int64_t channels = config.hidden_size, tp = slice.tp_size;
  const int64_t stream_rows = slice.stream_rows(rows_max);
  if (!config.is_gpt2()) {
    rope_table = arena.Take<T>(config.sequence_length_max * config.head_dim());
  }
  const int64_t part_rows =
      config.is_mixture() ? ExpertRowsMax(config, slice, rows_max) : rows_max;
  delta = arena.TakeTensor<T>(stream_rows, channels);
  normed_gradient = arena.TakeTensor<T>(stream_rows, channels);
  qkv_gradient = arena.TakeTensor<T>(rows_max, config.qkv_size() / tp);
  part_gradient =
      arena.TakeTensor<T>(std::max(part_rows, rows_max),
                          std::max(channels, config.intermediate_size) / tp);
  normed = arena.Take<T>(stream_rows * channels);
  activated = arena.Take<T>(part_rows * config.intermediate_size / tp);
  gain_gradient = arena.Take<T>(channels);
  bias_gradient = arena.Take<T>(channels);
  logits =
      arena.TakeTensor<T>(LogitRowsMax(), FindVocabulary(config, slice).size());
  losses = arena.Take<T>(rows_max);
  TakeSliceBuffers(arena);
  if (config.is_mixture()) TakeMixtureBuffers(arena);
}

template <typename T>
void Workspace<T>::TakeSliceBuffers(Arena& arena) {
  const int64_t channels = config.hidden_size;
  if (groups.tp != nullptr) {
    gathered = arena.TakeTensor<T>(rows_max, channels);
    gathered_gradient = arena.TakeTensor<T>(rows_max, channels);
    partial = arena.TakeTensor<T>(rows_max, channels);
    norm_gradients = arena.Take<T>(4 * channels);
    logit_tops = arena.Take<T>(logits.rows);
    logit_sums = arena.Take<T>(2 * logits.rows);
  }
  if (groups.cp != nullptr) {
    const int64_t length = config.sequence_length_max / slice.cp_size;
    if (config.is_gpt2()) {
      positions = arena.Take<T>(length * channels);
    } else {
      local_rope_table = arena.Take<T>(length * config.head_dim());
    }
    const int64_t kv_size =
        2 * config.kv_head_count / slice.tp_size * config.head_dim();
    for (T*& buffer : keys_values) buffer = arena.Take<T>(rows_max * kv_size);
    for (T*& buffer : kv_gradients) buffer = arena.Take<T>(rows_max * kv_size);
  }
}

template <typename T>
void Workspace<T>::TakeMixtureBuffers(Arena& arena) {
  const int64_t channels = config.hidden_size;
  expert_gradient =
      arena.TakeTensor<T>(ExpertRowsMax(config, slice, rows_max), channels);
  choice_gradient = arena.TakeTensor<T>(rows_max, config.experts_per_token);
  router_gradient = arena.TakeTensor<T>(rows_max, config.expert_count);
  row_gradient = arena.TakeTensor<T>(slice.stream_rows(rows_max), channels);
  balance = arena.Take<T>(config.expert_count);
  if (groups.cp != nullptr &&
      ExpertCapacity(config) < config.sequence_length_max) {
    run_count_max = 2 * SequenceCountMax(config, slice, rows_max);
    run_counts = arena.Take<T>((1 + slice.cp_size) * run_count_max *
                               config.expert_count);
  }
  if (groups.ep == nullptr) return;
  slot_rows =
      arena.TakeTensor<T>(rows_max * config.experts_per_token, channels);
  expert_rows = arena.TakeTensor<T>(expert_gradient.rows, channels);
  expert_counts = arena.Take<T>(2 * config.expert_count);
}

template <typename T>
void Workspace<T>::FillRopeTable() {
  const int64_t half = config.head_dim() / 2;
  std::vector<T> table(config.sequence_length_max * config.head_dim());
  for (int64_t t = 0; t < config.sequence_length_max; ++t) {
    T* row = table.data() + t * config.head_dim();
    for (int64_t i = 0; i < half; ++i) {
      const double exponent =
          static_cast<double>(2 * i) / static_cast<double>(2 * half);
      const double angle =
          static_cast<double>(t) * std::pow(config.rope_theta, -exponent);
      row[i] = static_cast<T>(std::cos(angle));
      row[half + i] = static_cast<T>(std::sin(angle));
    }
  }
  ops.FromHost(table.size() * sizeof(T), table.data(), rope_table);
}

template class Workspace<float>;
template class Workspace<double>;

}  // namespace atl::engine
