#include "worker/engine/parallel/zero/unit_parameters.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "worker/collective/collective.h"
#include "worker/engine/parallel/zero/unit_frame.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {
namespace {

using collective::Call;
using collective::kDataTypeOf;
using collective::Pending;

struct UnitPending {
  Pending spans[2];

  absl::Status Wait() {
    absl::Status status = spans[0].Wait();
    status.Update(spans[1].Wait());
    return status;
  }
};

// Starts to gather the spans of `unit` into `frame` at `data`; in place if
// `shard_of(span)` is already there.
template <typename T, typename ShardOf>
void StartGathers(const RankLayout& layout, RankGroups& groups, int unit,
                  const UnitFrame& frame, T* data, const ShardOf& shard_of,
                  UnitPending& pending) {
  const RankUnit& rank_unit = layout.units[unit];
  for (int i = 0; i < rank_unit.span_count; ++i) {
    const ShardSpan& span = layout.spans[rank_unit.first_span + i];
    pending.spans[i] = groups.gathers[span.is_expert]->Start(
        Call::AllGather(kDataTypeOf<T>, shard_of(rank_unit.first_span + i),
                        data + frame.span_begin[i], span.shard_count));
  }
}

template <typename T>
void PlaceDense(BasicOps<T>& ops, const UnitFrame& frame, T* data) {
  ops.Copy(frame.copy_count, data + frame.span_begin[0], data);
}

template <typename T>
class WholeParameters final : public UnitParameters<T> {
 public:
  WholeParameters(const RankLayout& layout, RankGroups& groups,
                  BasicOps<T>& ops)
      : layout_(layout), groups_(groups), ops_(ops) {}

  absl::Status Init() {
    for (size_t u = 0; u < layout_.units.size(); ++u) {
      units_.push_back({.frame = UnitFrame::Of(layout_, static_cast<int>(u))});
    }
    ASSIGN_OR_RETURN(arena_,
                     Arena::CreateFor([&](Arena& arena) { TakeBuffers(arena); },
                                      ops_.memory()));
    return absl::OkStatus();
  }

  absl::Status Prefetch(int) override { return absl::OkStatus(); }
  absl::StatusOr<const T*> Gather(int unit) override {
    Unit& u = units_[unit];
    if (u.is_arriving) {
      RETURN_IF_ERROR(u.pending.Wait());
      PlaceDense(ops_, u.frame, u.data);
      u.is_arriving = false;
    }
    return u.data;
  }
  void Release(int) override {}

  T* shard(int span) override {
    const ShardSpan& s = layout_.spans[span];
    const Unit& u = units_[s.rank_unit];
    return u.data +
           u.frame.span_begin[span - layout_.units[s.rank_unit].first_span] +
           s.group_rank * s.shard_count;
  }

  absl::Status Settle() override {
    for (size_t u = 0; u < units_.size(); ++u) {
      RETURN_IF_ERROR(Gather(static_cast<int>(u)).status());
    }
    return absl::OkStatus();
  }

  absl::Status ShardsChanged() override {
    for (size_t u = 0; u < units_.size(); ++u) {
      units_[u].is_arriving = true;
      if (groups_.gathers[0] == nullptr) continue;  // Nothing is shared.
      StartGathers(
          layout_, groups_, static_cast<int>(u), units_[u].frame,
          units_[u].data, [this](int span) { return shard(span); },
          units_[u].pending);
    }
    return absl::OkStatus();
  }

  int64_t kept_bytes() const override {
    return static_cast<int64_t>(arena_.used_bytes());
  }
  int64_t buffer_bytes() const override { return 0; }

 private:
  struct Unit {
    UnitFrame frame;
    T* data = nullptr;
    bool is_arriving = false;
    UnitPending pending;
  };
  void TakeBuffers(Arena& arena) {
    for (Unit& unit : units_) unit.data = arena.Take<T>(unit.frame.size);
  }

  const RankLayout& layout_;
  RankGroups& groups_;
  BasicOps<T>& ops_;
  Arena arena_;
  std::vector<Unit> units_;  // Destroyed before the memory that it waits for.
};

template <typename T>
class GatheredParameters final : public UnitParameters<T> {
 public:
  GatheredParameters(const RankLayout& layout, RankGroups& groups,
                     int slot_count, BasicOps<T>& ops)
      : layout_(layout), groups_(groups), ops_(ops), slots_(slot_count) {}

  absl::Status Init() {
    ASSIGN_OR_RETURN(arena_,
                     Arena::CreateFor([&](Arena& arena) { TakeBuffers(arena); },
                                      ops_.memory()));
    return absl::OkStatus();
  }

  absl::Status Prefetch(int unit) override {
    if (FindSlot(unit) != nullptr) return absl::OkStatus();
    Slot* const slot = FindSlot(-1);
    if (slot == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("unit ", unit, " needs a slot, but all ", slots_.size(),
                       " are in use"));
    }
    slot->unit = unit;
    slot->is_arriving = true;
    slot->frame = UnitFrame::Of(layout_, unit);
    StartGathers(
        layout_, groups_, unit, slot->frame, slot->data,
        [this](int span) { return shard(span); }, slot->pending);
    return absl::OkStatus();
  }

  absl::StatusOr<const T*> Gather(int unit) override {
    RETURN_IF_ERROR(Prefetch(unit));
    Slot* const slot = FindSlot(unit);
    if (slot->is_arriving) {
      RETURN_IF_ERROR(slot->pending.Wait());
      PlaceDense(ops_, slot->frame, slot->data);
      slot->is_arriving = false;
    }
    return slot->data;
  }

  void Release(int unit) override {
    Slot* const slot = FindSlot(unit);
    if (slot == nullptr) return;
    // The next call returns its error.
    slot->pending.Wait().IgnoreError();
    slot->unit = -1;
  }

  T* shard(int span) override {
    return shards_ + layout_.spans[span].state_begin;
  }

  absl::Status Settle() override {
    for (Slot& slot : slots_) {
      if (slot.unit >= 0) Release(slot.unit);
    }
    return absl::OkStatus();
  }
  absl::Status ShardsChanged() override { return Settle(); }

  int64_t kept_bytes() const override {
    return layout_.state_count * static_cast<int64_t>(sizeof(T));
  }
  int64_t buffer_bytes() const override {
    return static_cast<int64_t>(arena_.used_bytes()) - kept_bytes();
  }

 private:
  struct Slot {
    T* data = nullptr;
    int unit = -1;  // Present or arriving; -1: free.
    bool is_arriving = false;
    UnitFrame frame;
    UnitPending pending;
  };

  void TakeBuffers(Arena& arena) {
    shards_ = arena.Take<T>(layout_.state_count);
    const int64_t size = UnitFrame::SizeMax(layout_);
    for (Slot& slot : slots_) slot.data = arena.Take<T>(size);
  }
  Slot* FindSlot(int unit) {
    for (Slot& slot : slots_) {
      if (slot.unit == unit) return &slot;
    }
    return nullptr;
  }

  const RankLayout& layout_;
  RankGroups& groups_;
  BasicOps<T>& ops_;
  Arena arena_;
  T* shards_ = nullptr;
  std::vector<Slot> slots_;  // Destroyed before the memory that it waits for.
};

}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<UnitParameters<T>>> MakeWholeParameters(
    const RankLayout& layout, RankGroups& groups, BasicOps<T>& ops) {
  auto parameters = std::make_unique<WholeParameters<T>>(layout, groups, ops);
  RETURN_IF_ERROR(parameters->Init());
  return parameters;
}

template <typename T>
absl::StatusOr<std::unique_ptr<UnitParameters<T>>> MakeGatheredParameters(
    const RankLayout& layout, RankGroups& groups, int slot_count,
    BasicOps<T>& ops) {
  auto parameters =
      std::make_unique<GatheredParameters<T>>(layout, groups, slot_count, ops);
  RETURN_IF_ERROR(parameters->Init());
  return parameters;
}

#define ATL_ENGINE_INSTANTIATE(T)                                    \
  template absl::StatusOr<std::unique_ptr<UnitParameters<T>>>        \
  MakeWholeParameters(const RankLayout&, RankGroups&, BasicOps<T>&); \
  template absl::StatusOr<std::unique_ptr<UnitParameters<T>>>        \
  MakeGatheredParameters(const RankLayout&, RankGroups&, int, BasicOps<T>&);
ATL_ENGINE_INSTANTIATE(float)
ATL_ENGINE_INSTANTIATE(double)
#undef ATL_ENGINE_INSTANTIATE

}  // namespace atl::engine
