#include "worker/engine/parallel/zero/unit_gradients.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "base/status/check.h"
#include "base/status/status_macros.h"
#include "worker/collective/collective.h"
#include "worker/engine/parallel/zero/unit_frame.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {
namespace {

using collective::Call;
using collective::Collective;
using collective::kDataTypeOf;
using collective::Pending;
using collective::Reduction;

template <typename T>
Call SumInPlace(T* data, int64_t count) {
  return Call::AllReduce(kDataTypeOf<T>, Reduction::kSum, data, data, count);
}

// Common to all kinds: open units, and sums over copies of shards.
template <typename T>
class GradientsBase : public UnitGradients<T> {
 public:
  using Buffer = typename UnitGradients<T>::Buffer;

  GradientsBase(const RankLayout& layout, RankGroups& groups, BasicOps<T>& ops)
      : layout_(layout), groups_(groups), ops_(ops) {}

  absl::Status Finish() final {
    RETURN_IF_ERROR(FinishReductions());
    for (Pending& pending : replica_sums_) RETURN_IF_ERROR(pending.Wait());
    replica_sums_.clear();
    return SumTable();
  }

 protected:
  // Waits until shards hold the sums over their group.
  virtual absl::Status FinishReductions() = 0;

  Collective& FindReductions(const ShardSpan& span) {
    return *groups_.reductions[span.is_expert];
  }

  // Starts to sum a shard over its copies. The shard holds its group's sum.
  void StartReplicaSum(int span) {
    if (groups_.replicas == nullptr) return;
    replica_sums_.push_back(groups_.replicas->Start(
        SumInPlace(this->shard(span), layout_.spans[span].shard_count)));
  }

  const RankLayout& layout_;
  RankGroups& groups_;
  BasicOps<T>& ops_;
  Arena arena_;

 private:
  // Sums a tied table's gradient over the first and the last rank.
  absl::Status SumTable() {
    if (!layout_.shares_table) return absl::OkStatus();
    const int unit = layout_.table >= 0 ? layout_.table : layout_.embedding;
    if (unit < 0) return absl::OkStatus();
    const RankUnit& rank_unit = layout_.units[unit];
    CHECK_EQ(rank_unit.span_count, 1);
    const ShardSpan& span = layout_.spans[rank_unit.first_span];
    return groups_.table->Run(
        SumInPlace(this->shard(rank_unit.first_span), span.shard_count));
  }

  std::vector<Pending> replica_sums_;
};

// Whole gradients that add up over the passes of a step.
template <typename T>
class WholeGradients : public GradientsBase<T> {
 public:
  using Base = GradientsBase<T>;
  using Buffer = typename Base::Buffer;
  using Base::Base;

  absl::StatusOr<Buffer> Begin(int unit) final {
    Unit& u = units_[unit];
    u.is_open = true;
    return Buffer{u.data, u.pass_count > 0};
  }

  absl::Status End(int unit, bool is_last) final {
    Unit& u = units_[unit];
    CHECK(u.is_open);
    u.is_open = false;
    ++u.pass_count;
    return is_last ? StartReduction(unit) : absl::OkStatus();
  }

  int64_t kept_bytes() const final {
    return static_cast<int64_t>(this->arena_.used_bytes());
  }
  int64_t buffer_bytes() const final { return 0; }

 protected:
  struct Unit {
    int64_t size = 0;
    T* data = nullptr;
    bool is_open = false;
    int pass_count = 0;  // In this step.
  };

  virtual absl::Status StartReduction(int unit) = 0;

  // Takes memory for all units, without gaps.
  absl::Status TakeUnits(const std::vector<int64_t>& sizes) {
    int64_t all = 0;
    for (int64_t size : sizes) all += size;
    T* data = nullptr;
    const auto take = [&](Arena& arena) { data = arena.Take<T>(all); };
    ASSIGN_OR_RETURN(this->arena_, Arena::CreateFor(take, this->ops_.memory()));
    for (int64_t size : sizes) {
      units_.push_back({.size = size, .data = data});
      data += size;
    }
    return absl::OkStatus();
  }

  absl::Status FinishReductions() override {
    for (Unit& unit : units_) unit.pass_count = 0;
    return absl::OkStatus();
  }

  std::vector<Unit> units_;
};

template <typename T>
class BucketedGradients final : public WholeGradients<T> {
 public:
  using Base = WholeGradients<T>;
  using Base::Base;

  absl::Status Init(int64_t bucket_bytes) {
    std::vector<int64_t> sizes;
    for (const RankUnit& unit : this->layout_.units) {
      sizes.push_back(AlignShard(unit.element_count()));
    }
    RETURN_IF_ERROR(this->TakeUnits(sizes));
    // From the last unit, whose gradient is ready first.
    const int64_t count_max = bucket_bytes / static_cast<int64_t>(sizeof(T));
    bucket_of_.resize(sizes.size());
    for (int u = static_cast<int>(sizes.size()) - 1; u >= 0; --u) {
      const bool alone = this->layout_.units[u].span_count > 1;
      if (buckets_.empty() || alone || buckets_.back().is_alone ||
          buckets_.back().count + sizes[u] > count_max) {
        buckets_.push_back({.is_alone = alone});
      }
      Bucket& bucket = buckets_.back();
      bucket.first_unit = u;
      ++bucket.unit_count;
      bucket.count += sizes[u];
      bucket_of_[u] = static_cast<int>(buckets_.size()) - 1;
    }
    return absl::OkStatus();
  }

  T* shard(int span) override {
    const ShardSpan& s = this->layout_.spans[span];
    return this->units_[s.rank_unit].data + s.begin;
  }

 private:
  // Adjacent units, or one unit with experts.
  struct Bucket {
    bool is_alone = false;
    int first_unit = 0;
    int unit_count = 0;
    int64_t count = 0;
    int ended_count = 0;  // Units whose last pass has ended.
  };

  absl::Status StartReduction(int unit) override {
    Bucket& bucket = buckets_[bucket_of_[unit]];
    if (++bucket.ended_count < bucket.unit_count) return absl::OkStatus();
    const RankUnit& first = this->layout_.units[bucket.first_unit];
    if (!bucket.is_alone) {
      sums_.push_back(this->groups_.reductions[0]->Start(
          SumInPlace(this->units_[bucket.first_unit].data, bucket.count)));
      return absl::OkStatus();
    }
    for (int i = 0; i < first.span_count; ++i) {
      const ShardSpan& span = this->layout_.spans[first.first_span + i];
      sums_.push_back(this->FindReductions(span).Start(
          SumInPlace(shard(first.first_span + i), span.count)));
    }
    return absl::OkStatus();
  }

  absl::Status FinishReductions() override {
    for (Pending& pending : sums_) RETURN_IF_ERROR(pending.Wait());
    sums_.clear();
    for (Bucket& bucket : buckets_) bucket.ended_count = 0;
    return Base::FinishReductions();
  }

  std::vector<int> bucket_of_;  // By unit.
  std::vector<Bucket> buckets_;
  std::vector<Pending> sums_;
};

template <typename T>
class ScatteredGradients final : public WholeGradients<T> {
 public:
  using Base = WholeGradients<T>;
  using Base::Base;

  absl::Status Init() {
    std::vector<int64_t> sizes;
    for (size_t u = 0; u < this->layout_.units.size(); ++u) {
      frames_.push_back(UnitFrame::Of(this->layout_, static_cast<int>(u)));
      sizes.push_back(frames_.back().size);
    }
    return this->TakeUnits(sizes);
  }

  T* shard(int span) override {
    const ShardSpan& s = this->layout_.spans[span];
    return Gathered(span) + s.group_rank * s.shard_count;
  }

 private:
  using Reductions = std::vector<std::pair<int, Pending>>;  // By span.

  T* Gathered(int span) {
    const int unit = this->layout_.spans[span].rank_unit;
    return this->units_[unit].data +
           frames_[unit]
               .span_begin[span - this->layout_.units[unit].first_span];
  }

  absl::Status StartReduction(int unit) override {
    Reductions before = std::exchange(reductions_, {});
    const RankUnit& rank_unit = this->layout_.units[unit];
    T* const data = this->units_[unit].data;
    this->ops_.Copy(frames_[unit].copy_count, data,
                    data + frames_[unit].span_begin[0]);
    for (int i = 0; i < rank_unit.span_count; ++i) {
      const int at = rank_unit.first_span + i;
      const ShardSpan& span = this->layout_.spans[at];
      reductions_.emplace_back(
          at, this->FindReductions(span).Start(Call::ReduceScatter(
                  kDataTypeOf<T>, Reduction::kSum, Gathered(at), shard(at),
                  span.shard_count)));
    }
    // The previous unit's reductions overlapped with this unit's pass.
    return Settle(std::move(before));
  }

  absl::Status FinishReductions() override {
    RETURN_IF_ERROR(Settle(std::exchange(reductions_, {})));
    return Base::FinishReductions();
  }

  // Waits for `reductions`, and starts to sum their shards over copies.
  absl::Status Settle(Reductions reductions) {
    for (auto& [span, pending] : reductions) {
      RETURN_IF_ERROR(pending.Wait());
      this->StartReplicaSum(span);
    }
    return absl::OkStatus();
  }

  std::vector<UnitFrame> frames_;  // By unit.
  Reductions reductions_;          // Reductions of the unit that ended last.
};

template <typename T>
class GradientsBehind final : public GradientsBase<T> {
 public:
  using Base = GradientsBase<T>;
  using Buffer = typename Base::Buffer;

  GradientsBehind(const RankLayout& layout, RankGroups& groups, int slot_count,
                  BasicOps<T>& ops)
      : Base(layout, groups, ops),
        slots_(slot_count),
        has_sum_(layout.spans.size(), false) {}

  absl::Status Init() {
    ASSIGN_OR_RETURN(this->arena_,
                     Arena::CreateFor([&](Arena& arena) { TakeBuffers(arena); },
                                      this->ops_.memory()));
    return absl::OkStatus();
  }

  absl::StatusOr<Buffer> Begin(int unit) override {
    for (Slot& slot : slots_) {
      if (slot.unit == unit && slot.is_open) return Buffer{slot.full, false};
    }
    Slot* free = FreeSlot();
    while (free == nullptr) {
      CHECK(!reducing_.empty());
      RETURN_IF_ERROR(SettleOldest());
      free = FreeSlot();
    }
    free->unit = unit;
    free->is_open = true;
    free->frame = UnitFrame::Of(this->layout_, unit);
    // Padding is reduced too, so it must be 0.
    const RankUnit& rank_unit = this->layout_.units[unit];
    for (int i = 0; i < rank_unit.span_count; ++i) {
      const ShardSpan& span = this->layout_.spans[rank_unit.first_span + i];
      T* const gathered = free->full + free->frame.span_begin[i];
      this->ops_.SetZero(span.gathered_count() - span.count,
                         gathered + span.count);
    }
    return Buffer{free->full, false};
  }

  absl::Status End(int unit, bool is_last) override {
    const auto slot = std::find_if(
        slots_.begin(), slots_.end(),
        [unit](const Slot& s) { return s.unit == unit && s.is_open; });
    CHECK(slot != slots_.end());
    slot->is_open = false;
    slot->is_last = is_last;
    this->ops_.Copy(slot->frame.copy_count, slot->full,
                    slot->full + slot->frame.span_begin[0]);
    const RankUnit& rank_unit = this->layout_.units[unit];
    T* reduced = slot->reduced;
    for (int i = 0; i < rank_unit.span_count; ++i) {
      const ShardSpan& span = this->layout_.spans[rank_unit.first_span + i];
      slot->pending[i] = this->FindReductions(span).Start(Call::ReduceScatter(
          kDataTypeOf<T>, Reduction::kSum,
          slot->full + slot->frame.span_begin[i], reduced, span.shard_count));
      reduced += span.shard_count;
    }
    reducing_.push_back(&*slot);
    return absl::OkStatus();
  }

  T* shard(int span) override {
    return sums_ + this->layout_.spans[span].state_begin;
  }
  int64_t kept_bytes() const override {
    return this->layout_.state_count * static_cast<int64_t>(sizeof(T));
  }
  int64_t buffer_bytes() const override {
    return static_cast<int64_t>(this->arena_.used_bytes()) - kept_bytes();
  }

 private:
  struct Slot {
    T* full = nullptr;
    T* reduced = nullptr;  // The shards of its spans.
    int unit = -1;
    bool is_open = false;
    bool is_last = false;
    UnitFrame frame;
    Pending pending[2];
  };

  void TakeBuffers(Arena& arena) {
    sums_ = arena.Take<T>(this->layout_.state_count);
    int64_t reduced_count = 0;
    for (const RankUnit& unit : this->layout_.units) {
      int64_t count = 0;
      for (int i = 0; i < unit.span_count; ++i) {
        count += this->layout_.spans[unit.first_span + i].shard_count;
      }
      reduced_count = std::max(reduced_count, count);
    }
    const int64_t size = UnitFrame::SizeMax(this->layout_);
    for (Slot& slot : slots_) {
      slot.full = arena.Take<T>(size);
      slot.reduced = arena.Take<T>(reduced_count);
    }
  }

  Slot* FreeSlot() {
    for (Slot& slot : slots_) {
      if (slot.unit < 0) return &slot;
    }
    return nullptr;
  }

  // Waits for the oldest reduction and adds its result.
  absl::Status SettleOldest() {
    Slot* const slot = reducing_.front();
    reducing_.pop_front();
    const RankUnit& rank_unit = this->layout_.units[slot->unit];
    const T* reduced = slot->reduced;
    for (int i = 0; i < rank_unit.span_count; ++i) {
      RETURN_IF_ERROR(slot->pending[i].Wait());
      const int at = rank_unit.first_span + i;
      const int64_t count = this->layout_.spans[at].shard_count;
      T* const sum = shard(at);
      if (has_sum_[at]) {
        this->ops_.Axpy(count, T(1), reduced, sum);
      } else {
        this->ops_.Copy(count, reduced, sum);
      }
      reduced += count;
      has_sum_[at] = true;
      if (slot->is_last) this->StartReplicaSum(at);
    }
    slot->unit = -1;
    return absl::OkStatus();
  }

  absl::Status FinishReductions() override {
    while (!reducing_.empty()) RETURN_IF_ERROR(SettleOldest());
    has_sum_.assign(has_sum_.size(), false);
    return absl::OkStatus();
  }

  T* sums_ = nullptr;
  std::vector<Slot> slots_;     // Destroyed before their memory.
  std::deque<Slot*> reducing_;  // The oldest first.
  std::vector<bool> has_sum_;   // By span, in this step.
};

}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<UnitGradients<T>>> MakeBucketedGradients(
    const RankLayout& layout, RankGroups& groups, int64_t bucket_bytes,
    BasicOps<T>& ops) {
  auto gradients = std::make_unique<BucketedGradients<T>>(layout, groups, ops);
  RETURN_IF_ERROR(gradients->Init(bucket_bytes));
  return gradients;
}

template <typename T>
absl::StatusOr<std::unique_ptr<UnitGradients<T>>> MakeScatteredGradients(
    const RankLayout& layout, RankGroups& groups, BasicOps<T>& ops) {
  auto gradients = std::make_unique<ScatteredGradients<T>>(layout, groups, ops);
  RETURN_IF_ERROR(gradients->Init());
  return gradients;
}

template <typename T>
absl::StatusOr<std::unique_ptr<UnitGradients<T>>> MakeGradientsBehind(
    const RankLayout& layout, RankGroups& groups, int slot_count,
    BasicOps<T>& ops) {
  auto gradients =
      std::make_unique<GradientsBehind<T>>(layout, groups, slot_count, ops);
  RETURN_IF_ERROR(gradients->Init());
  return gradients;
}

#define ATL_ENGINE_INSTANTIATE(T)                                       \
  template absl::StatusOr<std::unique_ptr<UnitGradients<T>>>            \
  MakeBucketedGradients(const RankLayout&, RankGroups&, int64_t,        \
                        BasicOps<T>&);                                  \
  template absl::StatusOr<std::unique_ptr<UnitGradients<T>>>            \
  MakeScatteredGradients(const RankLayout&, RankGroups&, BasicOps<T>&); \
  template absl::StatusOr<std::unique_ptr<UnitGradients<T>>>            \
  MakeGradientsBehind(const RankLayout&, RankGroups&, int, BasicOps<T>&);
ATL_ENGINE_INSTANTIATE(float)
ATL_ENGINE_INSTANTIATE(double)
#undef ATL_ENGINE_INSTANTIATE

}  // namespace atl::engine
