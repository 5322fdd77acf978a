#include "worker/engine/model/workspace.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status/status_macros.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {
namespace {

constexpr int64_t kLogitRowsMin = 256;

}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<Workspace<T>>> Workspace<T>::Create(
    const ModelConfig& config, int64_t rows_max, BasicOps<T>& ops) {
  std::unique_ptr<Workspace> workspace(new Workspace(config, rows_max, ops));
  Arena measure;
  workspace->TakeBuffers(measure);
  ASSIGN_OR_RETURN(workspace->arena_,
                   Arena::Create(measure.used_bytes(), ops.memory()));
  workspace->TakeBuffers(workspace->arena_);
  if (workspace->rope_table != nullptr) workspace->FillRopeTable();
  return workspace;
}

template <typename T>
int64_t Workspace<T>::LogitRowsMax() const {
  const int64_t rows = ops.logit_run_elements() / config.vocab_size /
                       kLogitRowsMin * kLogitRowsMin;
  return std::min(rows_max, std::max(kLogitRowsMin, rows));
}

template <typename T>
void Workspace<T>::TakeBuffers(Arena& arena) {
  const int64_t channels = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  if (!config.is_gpt2()) {
    rope_table = arena.Take<T>(config.sequence_length_max * config.head_dim());
  }
  const int64_t choices =
      config.is_mixture() ? rows_max * config.experts_per_token : rows_max;
  delta = arena.TakeTensor<T>(rows_max, channels);
  normed_gradient = arena.TakeTensor<T>(rows_max, channels);
  qkv_gradient = arena.TakeTensor<T>(rows_max, config.qkv_size());
  part_gradient = arena.TakeTensor<T>(choices, std::max(channels, inner));
  gain_gradient = arena.Take<T>(channels);
  bias_gradient = arena.Take<T>(channels);
  logits = arena.TakeTensor<T>(LogitRowsMax(), config.vocab_size);
  losses = arena.Take<T>(rows_max);
  if (!config.is_mixture()) return;
  slot_begins.resize(config.expert_count + 1);
  expert_gradient = arena.TakeTensor<T>(choices, channels);
  choice_gradient = arena.TakeTensor<T>(rows_max, config.experts_per_token);
  router_gradient = arena.TakeTensor<T>(rows_max, config.expert_count);
  row_gradient = arena.TakeTensor<T>(rows_max, channels);
  balance = arena.Take<T>(config.expert_count);
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
