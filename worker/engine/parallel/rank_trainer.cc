#include "worker/engine/parallel/rank_trainer.h"

#include <algorithm>
#include <cmath>

#include "base/status/check.h"
#include "base/status/status_macros.h"

namespace atl::engine {
namespace {

using collective::Call;
using collective::kDataTypeOf;
using collective::Reduction;

// Size of the buckets in which copies' gradients are summed, as in PyTorch's
// DDP: large enough for bandwidth, small enough to start early.
constexpr int64_t kBucketBytes = int64_t{25} << 20;

PipelineShape MakeShape(const MeshOptions& options) {
  return {.kind = options.pipeline,
          .rank_count = options.mesh.size(MeshDimension::kPp),
          .chunk_count = options.chunk_count,
          .micro_batch_count = options.micro_batch_count};
}

}  // namespace

template <typename T>
RankTrainer<T>::RankTrainer(const RankTrainerOptions& options,
                            collective::Collective& world, BasicOps<T>& ops)
    : options_(options),
      layout_(MakeRankLayout(options.model, options.mesh, world.rank())),
      world_(world),
      ops_(ops),
      batch_ranks_(options.mesh.mesh.size(kBatchGroup)),
      batch_rank_(options.mesh.mesh.RankIn(world.rank(), kBatchGroup)),
      counts_loss_(layout_.local.slice.tp_rank == 0),
      actions_(MakePipelineSchedule(
          MakeShape(options.mesh),
          options.mesh.mesh.Coordinate(world.rank(), MeshDimension::kPp))),
      forward_actions_(ForwardActions(layout_)),
      visits_(ListUnitVisits(layout_, actions_, /*loss_forward=*/false)),
      loss_visits_(
          ListUnitVisits(layout_, forward_actions_, /*loss_forward=*/true)) {}

template <typename T>
absl::StatusOr<std::unique_ptr<RankTrainer<T>>> RankTrainer<T>::Create(
    const RankTrainerOptions& options, const ParameterLayout& layout,
    collective::Collective& world, BasicOps<T>& ops) {
  CHECK_EQ(world.size(), options.mesh.mesh.rank_count());
  std::unique_ptr<RankTrainer> trainer(new RankTrainer(options, world, ops));
  RETURN_IF_ERROR(trainer->Init(layout));
  return trainer;
}

template <typename T>
absl::Status RankTrainer<T>::Init(const ParameterLayout& layout) {
  ASSIGN_OR_RETURN(
      groups_,
      MakeRankGroups(options_.mesh, options_.model.tie_embeddings, world_));
  RETURN_IF_ERROR(InitShards());
  const int64_t rows = options_.batch_size /
                       (batch_ranks_ * options_.mesh.micro_batch_count) *
                       (options_.sequence_length / layout_.local.slice.cp_size);
  RETURN_IF_ERROR(InitBuffers(rows));
  ASSIGN_OR_RETURN(model_,
                   StageModel<T>::Create(
                       options_.model, layout_, options_.mesh.checkpointing,
                       {.tp = groups_.tp.get(),
                        .cp = groups_.cp.get(),
                        .ep = groups_.ep.get()},
                       rows, CountFlights(layout_, actions_), ops_));
  const int64_t message =
      model_->message_count({.batch = 1, .sequence_length = rows});
  const int chunks = options_.mesh.chunk_count;
  RETURN_IF_ERROR(forward_out_.Init(groups_.forward_out.get(), message, chunks,
                                    ops_.memory()));
  RETURN_IF_ERROR(backward_out_.Init(groups_.backward_out.get(), message,
                                     chunks, ops_.memory()));
  ASSIGN_OR_RETURN(resharder_, Resharder<T>::Create(
                                   ReshardPlan(options_.model, layout,
                                               options_.mesh, world_.rank()),
                                   world_, ops_));
  RETURN_IF_ERROR(ops_.status());
  // Fails on all ranks if one failed.
  return world_.Barrier();
}

template <typename T>
absl::Status RankTrainer<T>::InitBuffers(int64_t rows) {
  inputs_.resize(options_.mesh.micro_batch_count);
  targets_.resize(options_.mesh.micro_batch_count);
  const auto take = [&](Arena& arena) {
    logits_ = arena.Take<T>(options_.model.vocab_size);
    sums_ = arena.Take<double>(3);
    for (int32_t*& tokens : inputs_) tokens = arena.Take<int32_t>(rows);
    for (int32_t*& tokens : targets_) tokens = arena.Take<int32_t>(rows);
  };
  ASSIGN_OR_RETURN(arena_, Arena::CreateFor(take, ops_.memory()));
  host_logits_.resize(options_.model.vocab_size);
  return absl::OkStatus();
}

template <typename T>
absl::Status RankTrainer<T>::SumOverWorld(absl::Span<double> values) {
  const size_t bytes = values.size() * sizeof(double);
  ops_.FromHost(bytes, values.data(), sums_);
  RETURN_IF_ERROR(world_.Run(
      Call::AllReduce(collective::DataType::kF64, Reduction::kSum, sums_, sums_,
                      static_cast<int64_t>(values.size()))));
  ops_.ToHost(bytes, sums_, values.data());
  return HostStatus();
}

template <typename T>
absl::Status RankTrainer<T>::HostStatus() const {
  RETURN_IF_ERROR(ops_.status());
  return world_.status();
}

template <typename T>
absl::Status RankTrainer<T>::InitShards() {
  // One unit computes while the next one arrives or the previous one leaves; a
  // tied table has its own slot.
  const int slots = layout_.table >= 0 ? 3 : 2;
  switch (options_.mesh.sharding) {
    case ShardingMode::kReplicate: {
      ASSIGN_OR_RETURN(gradients_, MakeBucketedGradients<T>(
                                       layout_, groups_, kBucketBytes, ops_));
      break;
    }
    case ShardingMode::kZero1: {
      ASSIGN_OR_RETURN(gradients_,
                       MakeScatteredGradients<T>(layout_, groups_, ops_));
      break;
    }
    case ShardingMode::kZero2:
    case ShardingMode::kZero3: {
      ASSIGN_OR_RETURN(gradients_,
                       MakeGradientsBehind<T>(layout_, groups_, slots, ops_));
      break;
    }
  }
  if (options_.mesh.sharding == ShardingMode::kZero3) {
    ASSIGN_OR_RETURN(parameters_,
                     MakeGatheredParameters<T>(layout_, groups_, slots, ops_));
  } else {
    ASSIGN_OR_RETURN(parameters_,
                     MakeWholeParameters<T>(layout_, groups_, ops_));
  }
  ASSIGN_OR_RETURN(optimizer_, ShardOptimizer<T>::Create(
                                   options_.optimizer, options_.mesh, layout_,
                                   ListStateSegments(layout_), ops_));
  return absl::OkStatus();
}

// --- Passes ------------------------------------------------------------------

template <typename T>
absl::StatusOr<typename StageModel<T>::Pass> RankTrainer<T>::BeginVisit(
    const PipelineAction& action, const Passes& passes) {
  const UnitVisit& visit = passes.visits[next_visit_];
  typename StageModel<T>::Pass pass{.chunk = action.chunk,
                                    .micro_batch = action.micro_batch,
                                    .unit = visit.unit};
  ASSIGN_OR_RETURN(pass.parameters, parameters_->Gather(visit.unit));
  if (visit.table >= 0) {
    ASSIGN_OR_RETURN(pass.table, parameters_->Gather(visit.table));
  }
  // A slot may now hold another unit.
  if (options_.mesh.sharding == ShardingMode::kZero3) ops_.ParametersChanged();
  if (next_visit_ + 1 < passes.visits.size()) {
    const UnitVisit& next = passes.visits[next_visit_ + 1];
    RETURN_IF_ERROR(parameters_->Prefetch(next.unit));
    if (next.table >= 0) RETURN_IF_ERROR(parameters_->Prefetch(next.table));
  }
  return pass;
}

template <typename T>
void RankTrainer<T>::EndVisit(const Passes& passes) {
  const UnitVisit& visit = passes.visits[next_visit_++];
  const bool is_last = next_visit_ == passes.visits.size();
  for (int unit : {visit.unit, visit.table}) {
    if (unit < 0) continue;
    if (is_last || !passes.visits[next_visit_].Needs(unit)) {
      parameters_->Release(unit);
    }
  }
}

template <typename T>
absl::Status RankTrainer<T>::RunForward(const PipelineAction& action,
                                        Passes& passes) {
  const RankLayout::Chunk& chunk = layout_.chunks[action.chunk];
  if (chunk.stage == 0) {
    model_->Open(action.chunk, action.micro_batch,
                 passes.batches[action.micro_batch], passes.router);
  }
  for (int unit = chunk.begin; unit < chunk.end; ++unit) {
    ASSIGN_OR_RETURN(const typename StageModel<T>::Pass pass,
                     BeginVisit(action, passes));
    model_->ForwardUnit(pass, forward_out_.buffer());
    if (unit == layout_.head) {
      if (passes.makes_loss) passes.loss += model_->Loss(pass);
      if (passes.logits_row >= 0) {
        passes.logits = model_->Logits(pass, passes.logits_row);
      }
    }
    RETURN_IF_ERROR(model_->status());
    EndVisit(passes);
  }
  if (chunk.stage + 1 < layout_.stage_count) return absl::OkStatus();
  return SumRouters(action, passes);
}

template <typename T>
absl::Status RankTrainer<T>::SumRouters(const PipelineAction& action,
                                        Passes& passes) {
  const absl::Span<T> totals =
      model_->router_totals(action.chunk, action.micro_batch);
  if (totals.empty()) return absl::OkStatus();
  if (groups_.loss != nullptr) {
    RETURN_IF_ERROR(groups_.loss->Run(
        Call::AllReduce(kDataTypeOf<T>, Reduction::kSum, totals.data(),
                        totals.data(), static_cast<int64_t>(totals.size()))));
  }
  // All ranks of the group have the same sums; only the first counts them.
  if (options_.mesh.mesh.RankIn(world_.rank(), kLossGroup) == 0) {
    passes.router_loss += model_->RouterLoss(action.chunk, action.micro_batch);
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status RankTrainer<T>::RunBackward(const PipelineAction& action,
                                         Passes& passes) {
  using Gradients = typename StageModel<T>::Gradients;
  const RankLayout::Chunk& chunk = layout_.chunks[action.chunk];
  const bool is_last =
      action.micro_batch + 1 == options_.mesh.micro_batch_count;
  T* const message = backward_out_.buffer();
  for (int unit = chunk.end - 1; unit >= chunk.begin; --unit) {
    ASSIGN_OR_RETURN(const typename StageModel<T>::Pass pass,
                     BeginVisit(action, passes));
    ASSIGN_OR_RETURN(const auto own, gradients_->Begin(unit));
    Gradients table;
    const bool is_tied_head = unit == layout_.head && layout_.table >= 0;
    if (is_tied_head) {
      ASSIGN_OR_RETURN(const auto of_table, gradients_->Begin(layout_.table));
      table = {of_table.data, of_table.accumulate};
    }
    model_->BackwardUnit(pass, message, {own.data, own.accumulate}, table);
    RETURN_IF_ERROR(model_->status());
    EndVisit(passes);
    RETURN_IF_ERROR(gradients_->End(unit, is_last));
    // The embedding's own pass ends it if this rank has the embedding.
    if (is_tied_head && layout_.embedding < 0) {
      RETURN_IF_ERROR(gradients_->End(layout_.table, is_last));
    }
    if (unit == layout_.head) passes.loss += model_->last_loss();
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status RankTrainer<T>::RunAction(const PipelineAction& action,
                                       Passes& passes) {
  const int chunk = action.chunk, micro_batch = action.micro_batch;
  const TokenBatch& batch = passes.batches[micro_batch];
  const int64_t count = model_->message_count(batch);
  switch (action.kind) {
    case PipelineActionKind::kReceiveActivation:
      model_->Open(chunk, micro_batch, batch, passes.router);
      RETURN_IF_ERROR(ReceiveMessage(*groups_.forward_in,
                                     model_->input(chunk, micro_batch), count));
      model_->Received(chunk, micro_batch);
      return absl::OkStatus();
    case PipelineActionKind::kForward:
      return RunForward(action, passes);
    case PipelineActionKind::kSendActivation:
      return forward_out_.Send(count);
    case PipelineActionKind::kReceiveGradient:
      RETURN_IF_ERROR(
          ReceiveMessage(*groups_.backward_in, backward_out_.buffer(), count));
      model_->ReceivedGradient(chunk, micro_batch, backward_out_.buffer());
      return absl::OkStatus();
    case PipelineActionKind::kBackward:
      RETURN_IF_ERROR(RunBackward(action, passes));
      if (layout_.chunks[chunk].stage == 0) model_->Close(chunk, micro_batch);
      return absl::OkStatus();
    case PipelineActionKind::kSendGradient:
      model_->CompleteGradient(chunk, micro_batch, backward_out_.buffer());
      model_->Close(chunk, micro_batch);
      return backward_out_.Send(count);
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status RankTrainer<T>::Run(Passes& passes) {
  next_visit_ = 0;
  for (const PipelineAction& action : passes.actions) {
    RETURN_IF_ERROR(RunAction(action, passes));
  }
  RETURN_IF_ERROR(forward_out_.Finish());
  return backward_out_.Finish();
}

template <typename T>
absl::Status RankTrainer<T>::RunForwards(Passes& passes) {
  passes.actions = forward_actions_;
  passes.visits = loss_visits_;
  passes.router.rows = 1;  // Any value: this router loss is not read.
  RETURN_IF_ERROR(Run(passes));
  for (size_t c = 0; c < layout_.chunks.size(); ++c) {
    model_->Close(static_cast<int>(c), 0);
  }
  return absl::OkStatus();
}

template <typename T>
TokenBatch RankTrainer<T>::BatchAt(const int32_t* inputs,
                                   const int32_t* targets, int64_t first,
                                   int64_t count, int micro_batch) {
  const int64_t length = options_.sequence_length;
  const UnitSlice& slice = layout_.local.slice;
  inputs += first * length;
  if (targets != nullptr) targets += first * length;
  const auto fetch = [&](const int32_t* tokens, int32_t* to) {
    const size_t bytes =
        static_cast<size_t>(count * (length / slice.cp_size)) * sizeof(int32_t);
    if (slice.cp_size == 1) {
      ops_.FromHost(bytes, tokens, to);
    } else {
      ops_.FromHost(bytes, CutSequences(slice, count, length, tokens).data(),
                    to);
    }
  };
  fetch(inputs, inputs_[micro_batch]);
  if (targets != nullptr) fetch(targets, targets_[micro_batch]);
  return {.batch = count,
          .sequence_length = length / slice.cp_size,
          .inputs = inputs_[micro_batch],
          .targets = targets == nullptr ? nullptr : targets_[micro_batch]};
}

// --- Public calls ------------------------------------------------------------

template <typename T>
absl::StatusOr<typename RankTrainer<T>::StepResult> RankTrainer<T>::Step(
    const int32_t* inputs, const int32_t* targets, int64_t sequence_count,
    double learning_rate) {
  const int m = options_.mesh.micro_batch_count;
  const int64_t count = sequence_count / (batch_ranks_ * m);
  CHECK_EQ(count * batch_ranks_ * m, sequence_count);
  const double tokens =
      static_cast<double>(sequence_count * options_.sequence_length);
  ops_.ParametersChanged();
  model_->set_loss_scale(static_cast<T>(1 / tokens));
  Passes passes{
      .actions = actions_,
      .visits = visits_,
      .router = {.scale = 1.0 / m,
                 .rows = batch_ranks_ * count * options_.sequence_length}};
  for (int j = 0; j < m; ++j) {
    passes.batches.push_back(BatchAt(
        inputs, targets, (j * batch_ranks_ + batch_rank_) * count, count, j));
  }
  RETURN_IF_ERROR(Run(passes));
  RETURN_IF_ERROR(gradients_->Finish());
  const auto gradient = [this](int span) { return gradients_->shard(span); };
  const double counted = counts_loss_ ? 1 : 0;
  double sums[] = {counted * passes.loss, optimizer_->SumOfSquares(gradient),
                   counted * passes.router_loss};
  RETURN_IF_ERROR(ops_.status());
  RETURN_IF_ERROR(SumOverWorld(absl::MakeSpan(sums)));
  StepResult result{.loss = sums[0] / tokens,
                    .gradient_norm = std::sqrt(sums[1]),
                    .router_loss = sums[2]};
  result.is_finite =
      std::isfinite(result.loss) && std::isfinite(result.gradient_norm);
  if (!result.is_finite) return result;
  RETURN_IF_ERROR(
      optimizer_->Step(learning_rate, result.gradient_norm, gradient,
                       [this](int span) { return parameters_->shard(span); }));
  RETURN_IF_ERROR(parameters_->ShardsChanged());
  RETURN_IF_ERROR(ops_.status());
  return result;
}

template <typename T>
absl::StatusOr<double> RankTrainer<T>::EvaluateLoss(const int32_t* inputs,
                                                    const int32_t* targets,
                                                    int64_t sequence_count) {
  ops_.ParametersChanged();
  const int64_t count_max =
      options_.batch_size / (batch_ranks_ * options_.mesh.micro_batch_count);
  double loss = 0;
  for (int64_t at = 0; at < sequence_count;) {
    // All ranks take equally many. Near the end, a rank without a sequence
    // computes one that does not count.
    const int64_t left = sequence_count - at;
    const int64_t count =
        std::min(count_max, std::max<int64_t>(1, left / batch_ranks_));
    const int64_t begin = at + batch_rank_ * count;
    Passes passes{.makes_loss = true};
    passes.batches.push_back(
        BatchAt(inputs, targets, begin < sequence_count ? begin : 0, count, 0));
    RETURN_IF_ERROR(RunForwards(passes));
    if (begin < sequence_count && counts_loss_) loss += passes.loss;
    at += batch_ranks_ * count;
  }
  RETURN_IF_ERROR(ops_.status());
  RETURN_IF_ERROR(SumOverWorld(absl::MakeSpan(&loss, 1)));
  return loss / static_cast<double>(sequence_count * options_.sequence_length);
}

template <typename T>
absl::StatusOr<const T*> RankTrainer<T>::Logits(const int32_t* tokens,
                                                int64_t position) {
  ops_.ParametersChanged();
  const UnitSlice& slice = layout_.local.slice;
  // Row of the position in the rank's part of the sequence.
  int64_t row = -1, before = 0;
  for (const Range& run : SequenceRuns(slice, options_.sequence_length)) {
    if (position >= run.begin && position < run.end) {
      row = before + position - run.begin;
    }
    before += run.size();
  }
  // All copies compute the same; one of them contributes its result.
  Passes passes{.logits_row = std::max<int64_t>(row, 0)};
  passes.batches.push_back(BatchAt(tokens, nullptr, 0, 1, 0));
  RETURN_IF_ERROR(RunForwards(passes));
  const int64_t vocab = options_.model.vocab_size;
  ops_.SetZero(vocab, logits_);
  if (passes.logits != nullptr && row >= 0 && batch_rank_ == 0) {
    const Range own = FindVocabulary(options_.model, slice);
    ops_.Copy(own.size(), passes.logits, logits_ + own.begin);
  }
  RETURN_IF_ERROR(world_.Run(Call::AllReduce(kDataTypeOf<T>, Reduction::kSum,
                                             logits_, logits_, vocab)));
  ops_.ReadValues(vocab, logits_, host_logits_.data());
  RETURN_IF_ERROR(HostStatus());
  return host_logits_.data();
}

template <typename T>
absl::Status RankTrainer<T>::ScatterParameters(const T* held,
                                               const Elements& elements) {
  RETURN_IF_ERROR(parameters_->Settle());
  RETURN_IF_ERROR(resharder_->Scatter(
      held, elements, [this](const ReshardPlan::Run& run, const T* in) {
        ops_.WriteValues(run.count, in, Shard(*parameters_, run));
        return ops_.status();
      }));
  return parameters_->ShardsChanged();
}

template <typename T>
absl::Status RankTrainer<T>::GatherParameters(T* held,
                                              const Elements& elements) {
  return resharder_->Gather(
      [this](const ReshardPlan::Run& run, T* out) {
        ops_.ReadValues(run.count, Shard(*parameters_, run), out);
        return HostStatus();
      },
      elements, held);
}

template <typename T>
absl::Status RankTrainer<T>::ScatterMoment(int moment, const T* held) {
  return resharder_->Scatter(
      held, std::nullopt, [&](const ReshardPlan::Run& run, const T* in) {
        return optimizer_->moments()->Write(
            moment, layout_.spans[run.span].state_begin + run.offset,
            {in, static_cast<size_t>(run.count)});
      });
}

template <typename T>
absl::Status RankTrainer<T>::GatherMoment(int moment, T* held) {
  return resharder_->Gather(
      [&](const ReshardPlan::Run& run, T* out) {
        return optimizer_->moments()->Read(
            moment, layout_.spans[run.span].state_begin + run.offset,
            {out, static_cast<size_t>(run.count)});
      },
      std::nullopt, held);
}

template <typename T>
RankMemory RankTrainer<T>::memory() const {
  return {
      .parameter_bytes = parameters_->kept_bytes(),
      .gradient_bytes = gradients_->kept_bytes(),
      .moment_bytes = optimizer_->moments() == nullptr
                          ? 0
                          : optimizer_->moments()->memory_bytes(),
      .buffer_bytes = parameters_->buffer_bytes() + gradients_->buffer_bytes(),
      .activation_bytes = model_->activation_bytes() +
                          forward_out_.buffer_bytes() +
                          backward_out_.buffer_bytes()};
}

template class RankTrainer<float>;
template class RankTrainer<double>;

}  // namespace atl::engine
