#include "worker/engine/parallel/stage_model.h"

#include <algorithm>
#include <utility>

#include "base/status/check.h"
#include "base/status/status_macros.h"

namespace atl::engine {

template <typename T>
absl::StatusOr<std::unique_ptr<StageModel<T>>> StageModel<T>::Create(
    const ModelConfig& config, const RankLayout& rank_layout,
    ActivationCheckpointing checkpointing, const UnitGroups& groups,
    int64_t rows_max, std::vector<int> flight_counts, BasicOps<T>& ops) {
  ASSIGN_OR_RETURN(std::unique_ptr<Workspace<T>> work,
                   Workspace<T>::Create(config, rank_layout.local.slice, groups,
                                        rows_max, ops));
  std::unique_ptr<StageModel> model(new StageModel(
      config, rank_layout, checkpointing, std::move(work), flight_counts));
  ASSIGN_OR_RETURN(
      model->arena_,
      Arena::CreateFor([&](Arena& arena) { model->TakeBuffers(arena); },
                       ops.memory()));
  return model;
}

template <typename T>
StageModel<T>::StageModel(const ModelConfig& config,
                          const RankLayout& rank_layout,
                          ActivationCheckpointing checkpointing,
                          std::unique_ptr<Workspace<T>> work,
                          const std::vector<int>& flight_counts)
    : config_(config),
      rank_layout_(rank_layout),
      checkpointing_(checkpointing),
      work_(std::move(work)),
      blocks_(rank_layout.units.size()),
      host_totals_(2 * config.expert_count) {
  const ParameterLayout& layout = rank_layout.local.layout;
  const UnitSlice& slice = rank_layout.local.slice;
  const Keep keep = checkpointing == ActivationCheckpointing::kSelective
                        ? Keep::kProducts
                        : Keep::kAll;
  const int last = static_cast<int>(layout.units.size()) - 1;
  for (size_t u = 0; u < rank_layout.units.size(); ++u) {
    const int unit = rank_layout.units[u].unit;
    if (unit == 0) {
      embedding_ = std::make_unique<EmbeddingUnit<T>>(config, layout, slice);
    } else if (unit == last) {
      head_ = std::make_unique<HeadUnit<T>>(config, layout, slice);
    } else {
      blocks_[u] =
          std::make_unique<BlockUnit<T>>(config, layout, unit - 1, slice, keep);
    }
  }
  for (size_t c = 0; c < rank_layout.chunks.size(); ++c) {
    const RankLayout::Chunk& chunk = rank_layout.chunks[c];
    flights_.emplace_back(flight_counts[c]);
    for (Flight& flight : flights_.back()) {
      flight.inputs.resize(chunk.end - chunk.begin);
      flight.saved.resize(chunk.end - chunk.begin);
    }
  }
}

template <typename T>
void StageModel<T>::TakeBuffers(Arena& arena) {
  const int64_t stream =
      work_->slice.stream_rows(work_->rows_max) * config_.hidden_size;
  const int64_t totals = 2 * config_.expert_count;
  const bool again = checkpointing_ == ActivationCheckpointing::kFull;
  const auto take_totals = [&](RouterTotals<T>& of) {
    if (!config_.is_mixture()) return;
    of.counts = arena.Take<T>(totals);
    of.sums = of.counts + config_.expert_count;
  };
  size_t saved_max = 0;
  for (size_t c = 0; c < flights_.size(); ++c) {
    const int begin = rank_layout_.chunks[c].begin;
    for (Flight& flight : flights_[c]) {
      for (size_t i = 0; i < flight.inputs.size(); ++i) {
        const int u = begin + static_cast<int>(i);
        if (u == rank_layout_.embedding) continue;
        // The first input may be a message.
        flight.inputs[i] = arena.Take<T>(stream + (i == 0 ? totals : 0));
        size_t saved = 0;
        if (u == rank_layout_.head) {
          saved = head_->saved_bytes(work_->rows_max);
        } else if (!again) {
          saved = blocks_[u]->saved_bytes(work_->rows_max);
        } else {
          saved_max =
              std::max(saved_max, blocks_[u]->saved_bytes(work_->rows_max));
        }
        flight.saved[i] = arena.Take<char>(static_cast<int64_t>(saved));
      }
      take_totals(flight.totals);
    }
  }
  if (!again) return;
  again_saved_ = arena.Take<char>(static_cast<int64_t>(saved_max));
  again_out_ = arena.Take<T>(stream);
  take_totals(again_totals_);
}

template <typename T>
int64_t StageModel<T>::StreamCount(const TokenBatch& batch) const {
  return work_->slice.stream_rows(batch.rows()) * config_.hidden_size;
}

template <typename T>
int64_t StageModel<T>::message_count(const TokenBatch& batch) const {
  return StreamCount(batch) + 2 * config_.expert_count;
}

template <typename T>
typename StageModel<T>::Flight& StageModel<T>::FindFlight(int chunk,
                                                          int micro_batch) {
  for (Flight& flight : flights_[chunk]) {
    if (flight.micro_batch == micro_batch) return flight;
  }
  CHECK(false) << "micro-batch " << micro_batch << " of chunk " << chunk;
  return flights_[chunk][0];
}

template <typename T>
const typename StageModel<T>::Flight& StageModel<T>::FindFlight(
    int chunk, int micro_batch) const {
  return const_cast<StageModel*>(this)->FindFlight(chunk, micro_batch);
}

template <typename T>
void StageModel<T>::Open(int chunk, int micro_batch, const TokenBatch& batch,
                         const RouterShare& share) {
  CHECK_LE(batch.rows(), work_->rows_max);
  Flight& flight = FindFlight(chunk, -1);
  flight.micro_batch = micro_batch;
  flight.batch = batch;
  flight.totals.scale = static_cast<T>(share.scale);
  flight.totals.rows = share.rows;
  if (config_.is_mixture()) {
    work_->ops.SetZero(2 * config_.expert_count, flight.totals.counts);
  }
}

template <typename T>
void StageModel<T>::Close(int chunk, int micro_batch) {
  FindFlight(chunk, micro_batch).micro_batch = -1;
}

template <typename T>
T* StageModel<T>::input(int chunk, int micro_batch) {
  return FindFlight(chunk, micro_batch).inputs[0];
}

template <typename T>
void StageModel<T>::Received(int chunk, int micro_batch) {
  if (!config_.is_mixture()) return;
  Flight& flight = FindFlight(chunk, micro_batch);
  work_->ops.Copy(2 * config_.expert_count,
                  flight.inputs[0] + StreamCount(flight.batch),
                  flight.totals.counts);
}

template <typename T>
void StageModel<T>::ReceivedGradient(int chunk, int micro_batch,
                                     const T* message) {
  if (!config_.is_mixture()) return;
  Flight& flight = FindFlight(chunk, micro_batch);
  work_->ops.Copy(2 * config_.expert_count, message + StreamCount(flight.batch),
                  flight.totals.counts);
}

template <typename T>
void StageModel<T>::CompleteGradient(int chunk, int micro_batch,
                                     T* message) const {
  if (!config_.is_mixture()) return;
  const Flight& flight = FindFlight(chunk, micro_batch);
  work_->ops.Copy(2 * config_.expert_count, flight.totals.counts,
                  message + StreamCount(flight.batch));
}

template <typename T>
void StageModel<T>::ForwardUnit(const Pass& pass, T* message) {
  const RankLayout::Chunk& chunk = rank_layout_.chunks[pass.chunk];
  Flight& flight = FindFlight(pass.chunk, pass.micro_batch);
  const int i = pass.unit - chunk.begin;
  if (pass.unit == rank_layout_.head) {
    head_->Forward(*work_, pass.parameters, flight.batch.rows(),
                   flight.inputs[i], flight.saved[i]);
    return;
  }
  const bool is_last = pass.unit + 1 == chunk.end;
  T* const out = is_last ? message : flight.inputs[i + 1];
  if (pass.unit == rank_layout_.embedding) {
    embedding_->Forward(*work_, pass.parameters, flight.batch, out);
  } else {
    void* const saved =
        again_saved_ == nullptr ? flight.saved[i] : again_saved_;
    blocks_[pass.unit]->Forward(*work_, pass.parameters, flight.batch,
                                flight.inputs[i], saved, out, flight.totals);
  }
  if (is_last) CompleteGradient(pass.chunk, pass.micro_batch, message);
}

template <typename T>
const T* StageModel<T>::FindTable(const Pass& pass) const {
  return config_.tie_embeddings ? pass.table + embedding_->table_offset()
                                : pass.parameters + head_->table_offset();
}

template <typename T>
void StageModel<T>::BackwardHead(const Pass& pass, Flight& flight, T* message,
                                 const Gradients& gradients,
                                 const Gradients& table) {
  T* dtable = gradients.data + head_->table_offset();
  bool accumulate = gradients.accumulate;
  if (config_.tie_embeddings) {
    const RankUnit& unit = rank_layout_.units[rank_layout_.table];
    dtable = table.data + embedding_->table_offset();
    if (unit.is_table_copy && !table.accumulate) {
      // The head computes only the table's gradient; the rest of the unit is 0.
      work_->ops.SetZero(unit.element_count(), table.data);
    }
    CHECK_EQ(accumulate, table.accumulate);
  }
  last_loss_ = head_->Backward(
      *work_, pass.parameters, FindTable(pass), flight.batch,
      flight.inputs[pass.unit - rank_layout_.chunks[pass.chunk].begin],
      flight.saved[pass.unit - rank_layout_.chunks[pass.chunk].begin],
      loss_scale_, message, gradients.data, dtable, accumulate);
}

template <typename T>
void StageModel<T>::BackwardUnit(const Pass& pass, T* message,
                                 const Gradients& gradients,
                                 const Gradients& table) {
  Flight& flight = FindFlight(pass.chunk, pass.micro_batch);
  if (pass.unit == rank_layout_.head) {
    BackwardHead(pass, flight, message, gradients, table);
    return;
  }
  if (pass.unit == rank_layout_.embedding) {
    embedding_->Backward(*work_, flight.batch, message, gradients.data,
                         gradients.accumulate,
                         /*add_to_table=*/rank_layout_.table == pass.unit);
    return;
  }
  const int i = pass.unit - rank_layout_.chunks[pass.chunk].begin;
  void* saved = flight.saved[i];
  if (again_saved_ != nullptr) {
    saved = again_saved_;
    blocks_[pass.unit]->Forward(*work_, pass.parameters, flight.batch,
                                flight.inputs[i], saved, again_out_,
                                again_totals_);
  }
  blocks_[pass.unit]->Backward(*work_, pass.parameters, flight.batch,
                               flight.inputs[i], saved, flight.totals, message,
                               gradients.data, gradients.accumulate);
}

template <typename T>
double StageModel<T>::Loss(const Pass& pass) {
  const Flight& flight = FindFlight(pass.chunk, pass.micro_batch);
  return head_->Loss(
      *work_, FindTable(pass), flight.batch,
      flight.saved[pass.unit - rank_layout_.chunks[pass.chunk].begin]);
}

template <typename T>
const T* StageModel<T>::Logits(const Pass& pass, int64_t row) {
  const Flight& flight = FindFlight(pass.chunk, pass.micro_batch);
  return head_->Logits(
      *work_, FindTable(pass), flight.batch.rows(), row,
      flight.saved[pass.unit - rank_layout_.chunks[pass.chunk].begin]);
}

template <typename T>
absl::Span<T> StageModel<T>::router_totals(int chunk, int micro_batch) {
  return {FindFlight(chunk, micro_batch).totals.counts,
          static_cast<size_t>(2 * config_.expert_count)};
}

template <typename T>
double StageModel<T>::RouterLoss(int chunk, int micro_batch) {
  if (!config_.is_mixture()) return 0;
  const Flight& flight = FindFlight(chunk, micro_batch);
  const double all =
      static_cast<double>(config_.layer_count * flight.totals.rows);
  const int64_t count = config_.expert_count;
  work_->ops.ReadValues(2 * count, flight.totals.counts, host_totals_.data());
  double sum = 0;
  for (int64_t e = 0; e < count; ++e) {
    sum += static_cast<double>(host_totals_[e]) / all *
           static_cast<double>(host_totals_[count + e]) / all;
  }
  return sum * config_.router_loss_weight *
         static_cast<double>(config_.expert_count) *
         static_cast<double>(flight.totals.scale);
}

template class StageModel<float>;
template class StageModel<double>;

}  // namespace atl::engine
