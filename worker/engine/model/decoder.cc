#include "worker/engine/model/decoder.h"

#include <utility>

#include "base/status/check.h"
#include "base/status/status_macros.h"

namespace atl::engine {

template <typename T>
absl::StatusOr<std::unique_ptr<Decoder<T>>> Decoder<T>::Create(
    const ModelConfig& config, int64_t rows_max, BasicOps<T>& ops) {
  ASSIGN_OR_RETURN(std::unique_ptr<Workspace<T>> workspace,
                   Workspace<T>::Create(config, rows_max, ops));
  std::unique_ptr<Decoder> decoder(new Decoder(config, std::move(workspace)));
  ASSIGN_OR_RETURN(
      decoder->arena_,
      Arena::CreateFor([&](Arena& arena) { decoder->TakeBuffers(arena); },
                       ops.memory()));
  return decoder;
}

template <typename T>
Decoder<T>::Decoder(const ModelConfig& config,
                    std::unique_ptr<Workspace<T>> workspace)
    : config_(config),
      layout_(MakeParameterLayout(config)),
      work_(std::move(workspace)),
      embedding_(config, layout_),
      head_(config, layout_),
      streams_(config.layer_count + 1),
      saved_(config.layer_count + 1),
      host_totals_(2 * config.expert_count),
      host_logits_(config.vocab_size) {
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    blocks_.emplace_back(config, layout_, layer);
  }
}

template <typename T>
void Decoder<T>::TakeBuffers(Arena& arena) {
  const int64_t rows = work_->rows_max;
  for (T*& stream : streams_) {
    stream = arena.Take<T>(rows * config_.hidden_size);
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    saved_[i] =
        arena.Take<char>(static_cast<int64_t>(blocks_[i].saved_bytes(rows)));
  }
  saved_.back() =
      arena.Take<char>(static_cast<int64_t>(head_.saved_bytes(rows)));
  stream_gradient_ = arena.Take<T>(rows * config_.hidden_size);
  inputs_ = arena.Take<int32_t>(rows);
  targets_ = arena.Take<int32_t>(rows);
  if (!config_.is_mixture()) return;
  totals_.counts = arena.Take<T>(config_.expert_count);
  totals_.sums = arena.Take<T>(config_.expert_count);
}

template <typename T>
int64_t Decoder<T>::TableOffset() const {
  return config_.tie_embeddings
             ? embedding_.span().begin + embedding_.table_offset()
             : head_.span().begin + head_.table_offset();
}

template <typename T>
TokenBatch Decoder<T>::Fetch(const TokenBatch& batch) {
  DCHECK(batch.rows() >= 1);
  CHECK_LE(batch.rows(), work_->rows_max);
  CHECK_LE(batch.sequence_length, config_.sequence_length_max);
  const size_t bytes = sizeof(int32_t) * static_cast<size_t>(batch.rows());
  TokenBatch fetched = batch;
  work_->ops.FromHost(bytes, batch.inputs, inputs_);
  fetched.inputs = inputs_;
  if (batch.targets != nullptr) {
    work_->ops.FromHost(bytes, batch.targets, targets_);
    fetched.targets = targets_;
  }
  return fetched;
}

template <typename T>
void Decoder<T>::Forward(const T* parameters, const TokenBatch& batch) {
  work_->ops.ParametersChanged();  // The caller may have changed them.
  if (config_.is_mixture()) {
    work_->ops.SetZero(config_.expert_count, totals_.counts);
    work_->ops.SetZero(config_.expert_count, totals_.sums);
  }
  embedding_.Forward(*work_, parameters + embedding_.span().begin, batch,
                     streams_[0]);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    blocks_[i].Forward(*work_, parameters + blocks_[i].span().begin, batch,
                       streams_[i], saved_[i], streams_[i + 1], totals_);
  }
  head_.Forward(*work_, parameters + head_.span().begin, batch.rows(),
                streams_.back(), saved_.back());
}

template <typename T>
void Decoder<T>::SetRouterLoss(int64_t rows) {
  router_loss_ = 0;
  if (!config_.is_mixture()) return;
  const double all = static_cast<double>(config_.layer_count * rows);
  const int64_t count = config_.expert_count;
  const size_t bytes = sizeof(T) * static_cast<size_t>(count);
  work_->ops.ToHost(bytes, totals_.counts, host_totals_.data());
  work_->ops.ToHost(bytes, totals_.sums, host_totals_.data() + count);
  for (int64_t e = 0; e < count; ++e) {
    router_loss_ += static_cast<double>(host_totals_[e]) / all *
                    static_cast<double>(host_totals_[count + e]) / all;
  }
  router_loss_ *=
      config_.router_loss_weight * static_cast<double>(config_.expert_count);
}

template <typename T>
T Decoder<T>::ForwardBackward(const T* parameters, const TokenBatch& host_batch,
                              T* gradients) {
  const TokenBatch batch = Fetch(host_batch);
  QueueForwardBackward(parameters, batch, gradients);
  SetRouterLoss(batch.rows());
  const double loss = work_->ops.Sum(batch.rows(), work_->losses);
  return static_cast<T>(loss / static_cast<double>(batch.rows()));
}

template <typename T>
void Decoder<T>::QueueForwardBackward(const T* parameters,
                                      const TokenBatch& batch, T* gradients) {
  Forward(parameters, batch);
  head_.QueueBackward(*work_, parameters + head_.span().begin,
                      parameters + TableOffset(), batch, streams_.back(),
                      saved_.back(), T(1) / static_cast<T>(batch.rows()),
                      stream_gradient_, gradients + head_.span().begin,
                      gradients + TableOffset(),
                      /*accumulate=*/false);
  for (size_t i = blocks_.size(); i-- > 0;) {
    blocks_[i].Backward(*work_, parameters + blocks_[i].span().begin, batch,
                        streams_[i], saved_[i], totals_, stream_gradient_,
                        gradients + blocks_[i].span().begin,
                        /*accumulate=*/false);
  }
  embedding_.Backward(*work_, batch, stream_gradient_,
                      gradients + embedding_.span().begin,
                      /*accumulate=*/false,
                      /*add_to_table=*/config_.tie_embeddings);
}

template <typename T>
T Decoder<T>::Loss(const T* parameters, const TokenBatch& host_batch) {
  const TokenBatch batch = Fetch(host_batch);
  Forward(parameters, batch);
  const double loss =
      head_.Loss(*work_, parameters + TableOffset(), batch, saved_.back());
  SetRouterLoss(batch.rows());
  return static_cast<T>(loss / static_cast<double>(batch.rows()));
}

template <typename T>
const T* Decoder<T>::Logits(const T* parameters, const int32_t* tokens,
                            int64_t length, int64_t position) {
  Forward(parameters, Fetch({.batch = 1,
                             .sequence_length = length,
                             .inputs = tokens,
                             .targets = nullptr}));
  const T* logits = head_.Logits(*work_, parameters + TableOffset(), length,
                                 position, saved_.back());
  work_->ops.ToHost(sizeof(T) * host_logits_.size(), logits,
                    host_logits_.data());
  return host_logits_.data();
}

template class Decoder<float>;
template class Decoder<double>;

}  // namespace atl::engine
