#include "worker/engine/parallel/sharded_units.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status/check.h"
#include "base/status/status_macros.h"

namespace atl::engine {

using collective::Call;
using collective::DataType;
using collective::Reduction;

void ShardedUnits::TakeBuffers(Arena& arena, int slot_count) {
  const int64_t kept = shards_.kept_count();
  parameters_ = {arena.Take<float>(kept), static_cast<size_t>(kept)};
  gradients_ = {arena.Take<float>(kept), static_cast<size_t>(kept)};
  const auto before = static_cast<int64_t>(arena.used_bytes());
  gather_slots_.resize(slot_count);
  for (GatherSlot& slot : gather_slots_) {
    slot.data = arena.Take<float>(shards_.gathered_count_max());
  }
  gradient_slots_.resize(slot_count);
  for (GradientSlot& slot : gradient_slots_) {
    slot.full = arena.Take<float>(shards_.gathered_count_max());
    slot.reduced = arena.Take<float>(shards_.shard_count_max());
  }
  buffer_bytes_ = static_cast<int64_t>(arena.used_bytes()) - before;
}

absl::StatusOr<std::unique_ptr<ShardedUnits>> ShardedUnits::Create(
    FlatShards shards, collective::Collective& group, int slot_count) {
  CHECK_EQ(shards.group_size(), group.size());
  CHECK_GE(slot_count, 2);
  auto units =
      std::unique_ptr<ShardedUnits>(new ShardedUnits(std::move(shards)));
  Arena measuring;
  units->TakeBuffers(measuring, slot_count);
  ASSIGN_OR_RETURN(units->arena_, Arena::Create(measuring.used_bytes()));
  units->TakeBuffers(units->arena_, slot_count);
  ASSIGN_OR_RETURN(units->gathers_, group.Split(0, "gather"));
  ASSIGN_OR_RETURN(units->reductions_, group.Split(0, "reduce"));
  return units;
}

ShardedUnits::GatherSlot* ShardedUnits::SlotOf(int unit) {
  for (GatherSlot& slot : gather_slots_) {
    if (slot.unit == unit) return &slot;
  }
  return nullptr;
}

absl::Status ShardedUnits::Prefetch(int unit) {
  if (SlotOf(unit) != nullptr) return absl::OkStatus();
  GatherSlot* const slot = SlotOf(-1);
  if (slot == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "unit ", unit, " finds all ", gather_slots_.size(), " slots taken"));
  }
  const FlatShards::Unit& u = shards_.units()[unit];
  slot->unit = unit;
  slot->pending = gathers_->Start(
      Call::AllGather(DataType::kF32, parameters_.data() + u.shard_begin,
                      slot->data, u.shard_count));
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const float>> ShardedUnits::Gather(int unit) {
  RETURN_IF_ERROR(Prefetch(unit));
  GatherSlot* const slot = SlotOf(unit);
  RETURN_IF_ERROR(slot->pending.Wait());
  return absl::Span<const float>(
      slot->data, static_cast<size_t>(shards_.units()[unit].element_count));
}

void ShardedUnits::Release(int unit) {
  GatherSlot* const slot = SlotOf(unit);
  if (slot == nullptr) return;
  // An error of it comes back with the next call.
  slot->pending.Wait().IgnoreError();
  slot->unit = -1;
}

absl::StatusOr<absl::Span<float>> ShardedUnits::BeginGradient(int unit) {
  CHECK(open_gradient_ == nullptr);
  if (reducing_.size() == gradient_slots_.size()) {
    RETURN_IF_ERROR(SettleOldest());
  }
  const auto free =
      std::find_if(gradient_slots_.begin(), gradient_slots_.end(),
                   [](const GradientSlot& slot) { return slot.unit < 0; });
  CHECK(free != gradient_slots_.end());
  const FlatShards::Unit& u = shards_.units()[unit];
  free->unit = unit;
  // Its padding too: it is reduced with the rest.
  std::fill_n(free->full, u.shard_count * shards_.group_size(), 0.0f);
  open_gradient_ = &*free;
  return absl::Span<float>(free->full, static_cast<size_t>(u.element_count));
}

absl::Status ShardedUnits::EndGradient() {
  CHECK(open_gradient_ != nullptr);
  GradientSlot* const slot = std::exchange(open_gradient_, nullptr);
  slot->pending = reductions_->Start(Call::ReduceScatter(
      DataType::kF32, Reduction::kSum, slot->full, slot->reduced,
      shards_.units()[slot->unit].shard_count));
  reducing_.push_back(slot);
  return absl::OkStatus();
}

absl::Status ShardedUnits::SettleOldest() {
  GradientSlot* const slot = reducing_.front();
  RETURN_IF_ERROR(slot->pending.Wait());
  reducing_.pop_front();
  const FlatShards::Unit& u = shards_.units()[slot->unit];
  float* const sum = gradients_.data() + u.shard_begin;
  for (int64_t i = 0; i < u.shard_count; ++i) sum[i] += slot->reduced[i];
  slot->unit = -1;
  return absl::OkStatus();
}

absl::Status ShardedUnits::FinishGradients() {
  while (!reducing_.empty()) RETURN_IF_ERROR(SettleOldest());
  return absl::OkStatus();
}

}  // namespace atl::engine
