// Strict streaming runs of a few numbers. Despite kills and late, lost or
// reordered messages, every island computes the paper's algorithm, with the
// bits of an undisturbed run.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/layout/fragment_schedule.h"
#include "gtest/gtest.h"
#include "worker/core/acknowledged_seq.h"
#include "worker/core/island_loop.h"
#include "worker/core/local_update.h"
#include "worker/core/save_replay.h"
#include "worker/core/testing/own_slot.h"

namespace atl::worker {
namespace {

constexpr int32_t kBatch = 2;

// One number a fragment. The gradient of each depends on all of them, on the
// island and on the data, so any other order gives other bits.
template <typename Real>
void InnerStep(std::vector<Real>& x, int32_t slot, int64_t position,
               int64_t step) {
  Real sum = 0;
  for (const Real value : x) sum += value;
  const auto noise = static_cast<Real>(
      static_cast<double>((position * 37 + slot * 11) % 17) / 17 - 0.5);
  const auto rate = static_cast<Real>(0.05 / (1.0 + 0.01 * step));
  for (size_t p = 0; p < x.size(); ++p) {
    const auto target = static_cast<Real>(1 + slot + 0.5 * p);
    const Real gradient = (x[p] - target) + Real(0.3) * sum + noise;
    x[p] = x[p] - rate * gradient;
  }
}

struct Shape {
  int32_t island_count = 1;
  v1::RunSpec spec;
  int32_t fragment_count() const { return spec.layout().fragment_count(); }
};

Shape RandomShape(std::mt19937_64& random) {
  Shape shape;
  shape.island_count = static_cast<int32_t>(1 + random() % 3);
  v1::RunSpec& spec = shape.spec;
  spec.mutable_layout()->set_fragment_count(1 + random() % 4);
  spec.mutable_inner()->set_batch_size(kBatch);
  // Mostly the default.
  if (random() % 3 == 0) {
    spec.mutable_inner()->set_save_every_syncs(1 + random() % 9);
  }
  v1::OuterSpec& outer = *spec.mutable_outer();
  outer.set_optimizer(v1::OUTER_OPTIMIZER_KIND_NESTEROV);
  outer.set_learning_rate(0.7);
  outer.set_momentum(0.6);
  outer.set_weighting(v1::WEIGHTING_UNIFORM);
  v1::ScheduleSpec& schedule = *spec.mutable_schedule();
  schedule.set_timing(v1::TIMING_STRICT);
  const auto period =
      static_cast<int64_t>(shape.fragment_count() + random() % 6);
  schedule.set_inner_step_count(period);
  schedule.set_round_count(2 + random() % 5);
  schedule.set_fragment_schedule(random() % 3 == 0
                                     ? v1::FRAGMENT_SCHEDULE_TOGETHER
                                     : v1::FRAGMENT_SCHEDULE_STAGGERED);
  schedule.set_overlap_step_count(random() % period);
  switch (random() % 4) {
    case 0:
      schedule.set_blend(0.25 * static_cast<double>(1 + random() % 3));
      break;
    case 1:
      if (schedule.overlap_step_count() > 0) schedule.set_eager(true);
      break;
    default:
      break;
  }
  return shape;
}

template <typename Real>
struct Fragment {
  Real value = 0;
  Real momentum = 0;
  int64_t version = 0;

  void Merge(const std::vector<Real>& gradients, const v1::OuterSpec& outer) {
    const Real weight = Real(1) / static_cast<Real>(gradients.size());
    Real mean = 0;
    for (const Real gradient : gradients) mean += weight * gradient;
    const auto beta = static_cast<Real>(outer.momentum());
    momentum = beta * momentum + mean;
    value -= static_cast<Real>(outer.learning_rate()) *
             (mean + beta * momentum);
    ++version;
  }
};

// --- Streaming DiLoCo, arXiv 2501.18512, algorithm 2, in f64 -----------------

// As in the paper: one loop over inner steps, no messages.
std::vector<double> PaperResult(const Shape& shape) {
  const v1::ScheduleSpec& schedule = shape.spec.schedule();
  const int32_t count = shape.fragment_count();
  const int64_t step_count =
      schedule.inner_step_count() * schedule.round_count();
  std::vector<Fragment<double>> global(count);
  std::vector<std::vector<double>> local(
      shape.island_count, std::vector<double>(count, 0.0));
  // The outer gradients in flight, by the step at which they are received.
  std::map<int64_t, std::map<int32_t, std::vector<double>>> sent;
  for (int64_t t = 1; t <= step_count + schedule.overlap_step_count(); ++t) {
    for (int32_t m = 0; m < shape.island_count; ++m) {
      InnerStep(local[m], m, (t - 1) * kBatch, t - 1);
    }
    for (int32_t p = 0; p < count; ++p) {
      for (int64_t v = 0; v < schedule.round_count(); ++v) {
        if (PushStep(schedule, count, p, v) != t) continue;
        std::vector<double>& gradients =
            sent[t + schedule.overlap_step_count()][p];
        for (int32_t m = 0; m < shape.island_count; ++m) {
          gradients.push_back(global[p].value - local[m][p]);
        }
      }
    }
    for (const auto& [p, gradients] : sent[t]) {
      global[p].Merge(gradients, shape.spec.outer());
      for (int32_t m = 0; m < shape.island_count; ++m) {
        local[m][p] = schedule.blend() * local[m][p] +
                      (1 - schedule.blend()) * global[p].value;
      }
    }
  }
  std::vector<double> result;
  for (const Fragment<double>& fragment : global) {
    result.push_back(fragment.value);
  }
  return result;
}

class World {
 public:
  World(const Shape& shape, uint64_t seed, bool disturbed)
      : shape_(shape), random_(seed), disturbed_(disturbed) {
    fragments_.resize(shape.fragment_count());
    stored_.resize(shape.fragment_count());
    plan_.set_coordinator_epoch(1);
    plan_.set_run_epoch(1);
    plan_.set_run_state(v1::RUN_STATE_ACTIVE);
    plan_.add_shards()->set_address("a:1");
    for (int32_t f = 0; f < shape.fragment_count(); ++f) {
      plan_.add_cut()->set_fragment(f);
      Open(f);
    }
    islands_.resize(shape.island_count);
    for (int32_t i = 0; i < shape.island_count; ++i) NewLife(i);
  }

  std::vector<float> Run() {
    for (int i = 0; i < 200000; ++i) {
      if (testing::Test::HasFatalFailure()) break;
      const auto island = static_cast<int32_t>(Roll(islands_.size()));
      if (disturbed_ && Roll(60) == 0) Kill(island);
      if (!disturbed_ || Roll(3) != 0) Deliver(island);
      if (disturbed_ && Roll(8) == 0 && !old_.empty()) {
        // An older plan, mostly, which must not count.
        IslandLoop& loop = *islands_[island].loop;
        const v1::IslandPlan& old = old_[Roll(old_.size())][island];
        if (old.revision() >= loop.plan().revision()) loop.OnPlan(old);
      }
      Step(island, static_cast<Lane>(Roll(kLaneCount)));
      if (plan_.run_state() == v1::RUN_STATE_COMPLETED) {
        std::vector<float> values;
        for (const auto& fragment : fragments_) {
          values.push_back(fragment.value);
        }
        return values;
      }
    }
    ADD_FAILURE() << "the run does not end; island 0 does "
                  << islands_[0].loop->Next().reason;
    return {};
  }
  int kill_count() const { return kill_count_; }
  int repeated_count() const { return repeated_count_; }
  int save_count() const { return save_count_; }

 private:
  struct Model {
    std::vector<float> local, anchors, momentum, foreseen;
  };
  struct Contribution {
    int64_t anchor_version = 0;
    float gradient = 0;
  };
  using Key = std::pair<int32_t, int64_t>;  // Fragment, seq.
  // A whole save, and the records that follow it.
  struct Record {
    SavedPush push;
    std::vector<float> answers;
    Model after;  // Only the pushed fragments count.
    std::map<Key, Contribution> contributions;
  };
  struct Save {
    SaveSummary summary;
    Model model;
    std::map<Key, Contribution> contributions;
    std::vector<Record> records;

    const SaveSummary& newest() const {
      return records.empty() ? summary : records.back().push.summary;
    }
  };
  struct Island {
    std::unique_ptr<IslandLoop> loop;
    int64_t epoch = 0;
    int64_t seq_max = 0;  // The largest that a shard has seen.
    Model model;
    std::map<Key, Contribution> contributions;
    std::optional<Save> save;
    std::optional<Save> taken;  // The save as it becomes.
    Record applied;             // Since the newest push: only answers.
    std::optional<SaveReplay> replay;
    std::vector<v1::ContributionOutcome> outcomes;
    int64_t acknowledged_seq = 0;
    std::array<std::optional<Action>, kLaneCount> running;
  };

  uint64_t Roll(uint64_t n) { return random_() % n; }
  const v1::ScheduleSpec& schedule() const { return shape_.spec.schedule(); }

  void Open(int32_t f) {
    const int64_t version = fragments_[f].version;
    if (version >= schedule().round_count()) return;
    v1::OpenRound& open = *plan_.add_open_rounds();
    open.set_fragment(f);
    open.set_version(version);
    const int64_t start =
        StartStep(schedule(), shape_.fragment_count(), f, version);
    for (int32_t slot = 0; slot < shape_.island_count; ++slot) {
      v1::SlotPlan& plan = *open.add_slots();
      plan.set_slot(slot);
      plan.set_start_step(start);
      plan.set_step_count(
          PushStep(schedule(), shape_.fragment_count(), f, version) - start);
      plan.set_data_shard(slot);
    }
  }
  v1::IslandPlan PlanFor(int32_t island, v1::IslandPlan plan) const {
    plan.set_slot(island);
    plan.set_island_epoch(islands_[island].epoch);
    for (v1::OpenRound& open : *plan.mutable_open_rounds()) {
      KeepOwnSlot(island, open);
    }
    for (const auto& outcome : islands_[island].outcomes) {
      // Not even a Join brings back an outcome that an island acknowledged.
      if (outcome.key().seq() > islands_[island].acknowledged_seq) {
        *plan.add_outcomes() = outcome;
      }
    }
    return plan;
  }
  void Deliver(int32_t island) {
    islands_[island].loop->OnPlan(PlanFor(island, plan_));
  }
  void NewLife(int32_t i) {
    Island& island = islands_[i];
    island.loop = std::make_unique<IslandLoop>("run");
    const size_t count = shape_.fragment_count();
    const std::vector<float> zeros(count, 0.0f);
    // Values that are not restored must not matter.
    island.model = {std::vector<float>(count, NAN),
                    std::vector<float>(count, NAN), zeros, zeros};
    island.contributions.clear();
    island.taken.reset();
    island.applied = {};
    island.replay.reset();
    island.running = {};
    ++island.epoch;
    v1::JoinResponse join;
    *join.mutable_run()->mutable_spec() = shape_.spec;
    join.mutable_run()->set_run_epoch(1);
    join.set_slot(i);
    join.set_data_shard(i);
    join.set_island_epoch(island.epoch);
    join.set_next_seq(island.seq_max + 1 + (disturbed_ ? Roll(20) : 0));
    *join.mutable_plan() = PlanFor(i, plan_);
    island.loop->OnJoined(join);
  }
  void Kill(int32_t i) {
    // Without a save a fresh run starts from version 0; later there is one.
    ++kill_count_;
    NewLife(i);
  }

  // If disturbed, an action takes a while, and anything comes meanwhile.
  void Step(int32_t i, Lane lane) {
    Island& island = islands_[i];
    std::optional<Action>& running = island.running[static_cast<size_t>(lane)];
    if (!running.has_value()) {
      Action action = island.loop->Next(lane);
      ASSERT_EQ(action.reason, island.loop->Next(lane).reason);
      switch (action.kind) {
        case ActionKind::kWait:
          return island.loop->OnWaited(lane);
        case ActionKind::kFinish:
          ASSERT_TRUE(action.status.ok()) << action.status;
          return;
        case ActionKind::kLoadSave:
          return LoadSave(island);
        default:
          break;
      }
      island.loop->OnStarted(lane, action);
      running = std::move(action);
      if (disturbed_ && Roll(2) == 0) return;
    }
    Do(i, *std::exchange(running, std::nullopt));
  }
  static void LoadSave(Island& island) {
    std::optional<SaveSummary> summary;
    if (island.save.has_value()) {
      summary = island.save->newest();
      // May be pushed before the rest is restored.
      island.contributions = island.save->contributions;
      for (const Record& record : island.save->records) {
        island.contributions.insert(record.contributions.begin(),
                                    record.contributions.end());
      }
    }
    island.loop->OnSaveLoaded(summary);
  }
  // One unit, as IslandPart does it.
  void Restore(int32_t i, Action& action) {
    Island& island = islands_[i];
    if (!island.replay.has_value()) {
      island.model = island.save->model;
      std::vector<SavedPush> pushes;
      for (const Record& record : island.save->records) {
        pushes.push_back(record.push);
      }
      island.replay.emplace(island.save->summary, pushes, kBatch);
      ASSERT_TRUE(island.replay->IsSound());
    } else {
      const SaveReplay::Unit unit = island.replay->Next();
      int64_t step_count = 0;
      switch (unit.kind) {
        case SaveReplay::Kind::kTrain:
          ASSERT_EQ(unit.data_position, unit.step * kBatch);
          step_count = 1;
          InnerStep(island.model.local, i, unit.data_position, unit.step);
          break;
        case SaveReplay::Kind::kAnswer: {
          const Record& record = island.save->records[unit.record];
          const int32_t f = record.push.answers[unit.answer].fragment;
          island.model.anchors[f] = record.answers[unit.answer];
          Apply(island, f);
          break;
        }
        case SaveReplay::Kind::kPush: {
          const Record& record = island.save->records[unit.record];
          ++repeated_count_;
          if (!schedule().eager()) break;
          for (const auto& at : record.push.summary.contributions) {
            const int32_t f = at.fragment;
            island.model.local[f] = record.after.foreseen[f];
            island.model.foreseen[f] = record.after.foreseen[f];
            island.model.momentum[f] = record.after.momentum[f];
          }
          break;
        }
        case SaveReplay::Kind::kDone:
          FAIL();
      }
      island.replay->OnDone(unit, step_count);
    }
    action.unfinished = island.replay->Next().kind != SaveReplay::Kind::kDone;
    // Anchors are pulled again.
    if (!action.unfinished) {
      island.model.anchors.assign(shape_.fragment_count(), NAN);
      island.replay.reset();
    }
  }
  void Do(int32_t i, Action action) {
    Island& island = islands_[i];
    absl::Status status;
    const bool fails = disturbed_ && Roll(6) == 0;
    switch (action.kind) {
      case ActionKind::kRestoreSave:
        Restore(i, action);
        break;
      case ActionKind::kResetOptimizer:
        FAIL() << "a strict run of the same members never starts afresh";
      case ActionKind::kPull:
        if (fails) status = absl::UnavailableError("test");
        if (!status.ok()) break;
        ASSERT_EQ(action.version, fragments_[action.fragment].version);
        island.model.anchors[action.fragment] =
            fragments_[action.fragment].value;
        break;
      case ActionKind::kBeginRound:
        island.model.local = island.model.anchors;
        break;
      case ActionKind::kTrain:
        ASSERT_EQ(action.data_position, action.step * kBatch);
        InnerStep(island.model.local, i, action.data_position, action.step);
        break;
      case ActionKind::kContribute:
        Contribute(island, action);
        if (!action.in_background) KeepTaken(island);
        break;
      case ActionKind::kSave:
        if (fails) status = absl::ResourceExhaustedError("test");
        if (!status.ok()) break;
        ASSERT_TRUE(island.taken.has_value());
        ASSERT_EQ(island.taken->newest().seq, action.seq);
        KeepTaken(island);
        ++save_count_;
        break;
      case ActionKind::kPush:
        if (fails) status = absl::UnavailableError("test");
        if (status.ok()) Push(i, action);
        break;
      case ActionKind::kApply:
        ASSERT_FALSE(action.adopt) << "it was in every round";
        if (!action.whole_save) {
          island.applied.push.answers.push_back({.clock = action.clock,
                                                 .fragment = action.fragment,
                                                 .version = action.version});
          island.applied.answers.push_back(
              island.model.anchors[action.fragment]);
        }
        Apply(island, action.fragment);
        break;
      default:
        break;
    }
    const std::vector<std::string> before = OthersNext(*island.loop);
    island.loop->OnDone(action, status);
    // An inner step does not wake the other lanes.
    if (action.kind == ActionKind::kTrain && status.ok()) {
      ASSERT_EQ(OthersNext(*island.loop), before);
    }
  }
  static std::vector<std::string> OthersNext(const IslandLoop& loop) {
    std::vector<std::string> next;
    for (const Lane lane : {Lane::kPush, Lane::kPull, Lane::kSave}) {
      const Action action = loop.Next(lane);
      next.push_back(absl::StrCat(ActionName(action.kind), " ", action.fragment,
                                  " ", action.version, " ", action.seq, " ",
                                  action.reason));
    }
    return next;
  }

  static absl::Span<float> At(std::vector<float>& values, int32_t f) {
    return absl::MakeSpan(values).subspan(f, 1);
  }
  static void KeepTaken(Island& island) {
    island.save = *std::exchange(island.taken, std::nullopt);
    if (island.save->records.empty()) {
      island.acknowledged_seq = AcknowledgedSeq(island.save->summary, {});
    }
    std::map<Key, Contribution> all = island.save->contributions;
    for (const Record& record : island.save->records) {
      all.insert(record.contributions.begin(), record.contributions.end());
    }
    // Those in flight may be pushed.
    island.contributions.clear();
    for (const SavedTrack& track : island.save->newest().tracks) {
      const auto kept = all.find({track.fragment, track.seq});
      if (kept != all.end()) island.contributions.insert(*kept);
    }
  }
  void Contribute(Island& island, const Action& action) {
    ASSERT_FALSE(island.taken.has_value());
    Model& model = island.model;
    Record record = std::exchange(island.applied, {});
    SaveSummary& summary = record.push.summary;
    summary = island.loop->StreamSave(action);
    for (const AnchoredFragment& at : action.contributions) {
      const int32_t f = at.fragment;
      record.contributions[{f, action.seq}] = {
          at.anchor_version, model.anchors[f] - model.local[f]};
      if (schedule().eager()) {
        EagerStep(shape_.spec.outer())
            .Foresee(At(model.anchors, f), static_cast<float>(action.weight),
                     At(model.local, f), At(model.foreseen, f),
                     At(model.momentum, f));
      }
    }
    summary.run_id = "run";
    summary.run_epoch = 1;
    summary.slot = action.slot;
    summary.seq = action.seq;
    summary.contributions = action.contributions;
    summary.data_shard = action.data_shard;
    summary.data_position = action.data_position;
    if (action.whole_save) {
      Save save;
      save.summary = summary;
      save.model = model;
      // Values that are not saved must not matter.
      save.model.anchors.assign(shape_.fragment_count(), NAN);
      save.contributions = record.contributions;
      save.contributions.insert(island.contributions.begin(),
                                island.contributions.end());
      island.taken = std::move(save);
      return;
    }
    record.after = model;
    ASSERT_TRUE(island.save.has_value());
    island.taken = island.save;
    island.taken->records.push_back(std::move(record));
  }
  void Apply(Island& island, int32_t f) {
    Model& model = island.model;
    if (schedule().eager()) {
      EagerStep(shape_.spec.outer())
          .Correct(At(model.anchors, f), At(model.foreseen, f),
                   At(model.local, f), At(model.momentum, f));
      return;
    }
    BlendIn(At(model.local, f), At(model.anchors, f),
            static_cast<float>(schedule().blend()));
  }
  void Push(int32_t i, const Action& action) {
    Island& island = islands_[i];
    const int32_t f = action.fragment;
    const auto made = island.contributions.find({f, action.seq});
    if (made == island.contributions.end()) {
      // Merged during this push, and dropped.
      const auto& outcomes = island.outcomes;
      ASSERT_TRUE(std::any_of(outcomes.begin(), outcomes.end(),
                              [&](const v1::ContributionOutcome& outcome) {
                                return outcome.key().fragment() == f &&
                                       outcome.key().seq() == action.seq;
                              }));
      return;
    }
    island.seq_max = std::max(island.seq_max, action.seq);
    if (made->second.anchor_version != fragments_[f].version) return;
    const auto [stored, is_new] =
        stored_[f].try_emplace(i, action.seq, made->second.gradient);
    // The same bytes under one key, and one key a round.
    ASSERT_EQ(stored->second.first, action.seq);
    ASSERT_EQ(stored->second.second, made->second.gradient);
    if (static_cast<int32_t>(stored_[f].size()) == shape_.island_count) {
      Commit(f);
    }
  }
  void Commit(int32_t f) {
    std::vector<v1::IslandPlan>& old = old_.emplace_back();
    for (int32_t i = 0; i < shape_.island_count; ++i) {
      old.push_back(PlanFor(i, plan_));
    }
    if (old_.size() > 20) old_.erase(old_.begin());
    std::vector<float> gradients;
    for (const auto& [slot, made] : stored_[f]) {
      gradients.push_back(made.second);
      v1::ContributionOutcome& outcome =
          islands_[slot].outcomes.emplace_back();
      outcome.mutable_key()->set_run_epoch(1);
      outcome.mutable_key()->set_fragment(f);
      outcome.mutable_key()->set_slot(slot);
      outcome.mutable_key()->set_seq(made.first);
      outcome.set_outcome(v1::OUTCOME_MERGED);
    }
    stored_[f].clear();
    fragments_[f].Merge(gradients, shape_.spec.outer());
    auto& rounds = *plan_.mutable_open_rounds();
    for (int r = rounds.size() - 1; r >= 0; --r) {
      if (rounds[r].fragment() == f) rounds.DeleteSubrange(r, 1);
    }
    plan_.set_commit_seq(plan_.commit_seq() + 1);
    plan_.mutable_cut(f)->set_version(fragments_[f].version);
    plan_.mutable_cut(f)->set_commit_seq(plan_.commit_seq());
    Open(f);
    if (plan_.open_rounds().empty()) {
      plan_.set_run_state(v1::RUN_STATE_COMPLETED);
    }
    plan_.set_revision(plan_.revision() + 1);
  }

  const Shape shape_;
  std::mt19937_64 random_;
  const bool disturbed_;
  std::vector<Fragment<float>> fragments_;
  // By fragment: slot -> seq, gradient.
  std::vector<std::map<int32_t, std::pair<int64_t, float>>> stored_;
  v1::IslandPlan plan_;
  std::vector<std::vector<v1::IslandPlan>> old_;  // By island.
  std::vector<Island> islands_;
  int kill_count_ = 0;
  int repeated_count_ = 0;  // Pushes of records.
  int save_count_ = 0;  // Concurrent with steps.
};

TEST(StreamTrajectoryTest, IsThePapersAndTheSameBitsWhateverHappens) {
  std::random_device device;
  const uint64_t first = device();
  int kill_count = 0, save_count = 0, repeated_count = 0;
  int streaming_count = 0;
  for (uint64_t seed = first; seed < first + 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const Shape shape = RandomShape(random);
    if (!IsStreaming(shape.spec.schedule())) continue;
    ++streaming_count;
    const std::vector<float> undisturbed =
        World(shape, seed, /*disturbed=*/false).Run();
    ASSERT_EQ(undisturbed.size(), shape.fragment_count());
    if (!shape.spec.schedule().eager()) {
      const std::vector<double> paper = PaperResult(shape);
      for (size_t f = 0; f < paper.size(); ++f) {
        EXPECT_NEAR(undisturbed[f], paper[f],
                    1e-4 * std::max(1.0, std::abs(paper[f])));
      }
    }
    for (uint64_t again = 1; again <= 3; ++again) {
      World world(shape, seed * 1000 + again, /*disturbed=*/true);
      EXPECT_EQ(world.Run(), undisturbed);
      kill_count += world.kill_count();
      save_count += world.save_count();
      repeated_count += world.repeated_count();
    }
    if (testing::Test::HasFailure()) {
      std::cout << "seed " << seed << "\n" << shape.spec.DebugString();
      return;
    }
  }
  EXPECT_GT(streaming_count, 50);
  EXPECT_GT(kill_count, 500) << "too few kills to prove it";
  EXPECT_GT(repeated_count, 300) << "too few records to prove it";
  EXPECT_GT(save_count, 500) << "too few concurrent saves to prove it";
}

}  // namespace
}  // namespace atl::worker
