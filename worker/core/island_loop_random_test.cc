// Invariants of the loop under random plans, failures and restarts. A twin
// follows it, which gets every outcome of every plan and every Join; the loop
// gets none that its island has acknowledged. Both do the same.

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "worker/core/acknowledged_seq.h"
#include "worker/core/island_loop.h"
#include "worker/core/testing/own_slot.h"
#include "worker/core/testing/shaped_plan.h"

namespace atl::worker {
namespace {

constexpr int64_t kRounds = 30;

class World : ShapedPlan {
 public:
  explicit World(uint64_t seed)
      : random_(seed), fragment_count_(1 + Roll(3)) {
    v1::ScheduleSpec& schedule = Schedule();
    schedule.set_timing(Roll(2) == 0 ? v1::TIMING_STRICT : v1::TIMING_ELASTIC);
    schedule.set_inner_step_count(3);
    schedule.set_max_ahead_steps(2);
    schedule.set_round_count(kRounds);
    schedule.set_sample_fraction(Roll(2) == 0 ? 1 : 0.5);
    Spec().mutable_evaluation()->set_every_round_count(Roll(3));
    for (int32_t f = 0; f < fragment_count_; ++f) {
      AddFragment();
      Open(f);
    }
    NewLife();
  }

  // Outcomes that the loop's plans had no longer.
  int64_t left_out_count() const { return left_out_count_; }

  void Run() {
    for (int i = 0; i < 3000 && !HasFatalFailure(); ++i) {
      if (Roll(3) == 0) Disturb();
      Step();
    }
    Calm();
  }

 private:
  static bool HasFatalFailure() { return testing::Test::HasFatalFailure(); }
  uint64_t Roll(uint64_t n) { return random_() % n; }

  void NewLife() {
    loop_ = std::make_unique<IslandLoop>(kRun);
    twin_ = std::make_unique<IslandLoop>(kRun);
    held_.assign(fragment_count_, -1);
    saved_in_memory_.reset();
    save_loaded_ = false;
    stopped_ = false;
    read_.clear();
    Join();
  }
  void Join() {
    join_.set_island_epoch(join_.island_epoch() + 1);
    join_.set_next_seq(seq_max_ + 1 + Roll(3));
    plan_.set_island_epoch(join_.island_epoch());
    plan_.set_revision(plan_.revision() + 1);
    *join_.mutable_plan() = plan_;
    twin_->OnJoined(join_);
    *join_.mutable_plan() = NeededPlan();
    loop_->OnJoined(join_);
  }
  void Publish() {
    plan_.set_revision(plan_.revision() + 1);
    twin_->OnPlan(plan_);
    loop_->OnPlan(NeededPlan());
  }
  v1::IslandPlan NeededPlan() {
    v1::IslandPlan plan = plan_;
    plan.clear_outcomes();
    for (const v1::ContributionOutcome& outcome : plan_.outcomes()) {
      if (outcome.key().seq() > acknowledged_seq_) {
        *plan.add_outcomes() = outcome;
      } else {
        ++left_out_count_;
      }
    }
    return plan;
  }
  void Done(const Action& action, const absl::Status& status) {
    loop_->OnDone(action, status);
    twin_->OnDone(action, status);
  }
  const v1::OpenRound* FindOpen(int32_t f) const {
    for (const v1::OpenRound& open : plan_.open_rounds()) {
      if (open.fragment() == f) return &open;
    }
    return nullptr;
  }
  void Open(int32_t f) {
    if (FindOpen(f) != nullptr || Version(f) >= kRounds) return;
    v1::OpenRound& open = *plan_.add_open_rounds();
    open.set_fragment(f);
    open.set_version(Version(f));
    for (int32_t slot = 0; slot < 3; ++slot) {
      if (Roll(4) == 0) continue;
      v1::SlotPlan& slot_plan = *open.add_slots();
      slot_plan.set_slot(slot);
      slot_plan.set_step_count(1 + Roll(3));
      slot_plan.set_start_step(3 * Version(f));
      slot_plan.set_data_shard(slot);
    }
    KeepOwnSlot(kSlot, open);
  }
  void Decide(int32_t f, int64_t seq, v1::Outcome outcome) {
    ShapedPlan::Decide(f, seq, outcome);
    decided_.insert({f, seq});
  }
  void Have(int32_t f) {
    auto& keys = *plan_.mutable_needs_repush();
    for (int i = keys.size() - 1; i >= 0; --i) {
      if (keys[i].fragment() == f) keys.DeleteSubrange(i, 1);
    }
  }
  void Commit(int32_t f) {
    Have(f);
    const auto stored = stored_.find({f, Version(f)});
    if (stored != stored_.end()) {
      Decide(f, stored->second,
             Roll(4) == 0 ? v1::OUTCOME_LATE : v1::OUTCOME_MERGED);
    }
    Close(f);
    Advance(f);
  }

  void Disturb() {
    const int32_t f = Roll(fragment_count_);
    switch (Roll(13)) {
      case 0:
      case 1:
        if (Version(f) < kRounds) Commit(f);
        break;
      case 2:
      case 3:
        Open(f);
        break;
      case 4:
        Close(f);  // Sealed.
        break;
      case 5: {  // Aborted: the round opens again.
        const auto stored = stored_.find({f, Version(f)});
        if (stored != stored_.end() &&
            decided_.count({f, stored->second}) == 0) {
          Decide(f, stored->second, v1::OUTCOME_DROPPED);
        }
        Close(f);
        Open(f);
        break;
      }
      case 6:
        plan_.set_coordinator_epoch(plan_.coordinator_epoch() + 1);
        plan_.set_revision(0);
        break;
      case 7:
        plan_.set_run_state(Roll(3) == 0 ? v1::RUN_STATE_PAUSED
                                         : v1::RUN_STATE_ACTIVE);
        break;
      case 8:
        {
          const bool up = Roll(2) == 0;
          loop_->OnConnection(up);
          twin_->OnConnection(up);
        }
        break;
      case 9:
        Join();
        break;
      case 10:
        if (Roll(4) == 0) NewLife();
        break;
      case 12: {  // A shard lost its contributions.
        const auto stored = stored_.find({f, Version(f)});
        if (stored == stored_.end() ||
            decided_.count({f, stored->second}) != 0) {
          break;
        }
        v1::ContributionKey& key = *plan_.add_needs_repush();
        key.set_run_epoch(1);
        key.set_fragment(f);
        key.set_slot(kSlot);
        key.set_seq(stored->second);
        stored_.erase(stored);
        break;
      }
      case 11:
        if (Roll(20) == 0) {
          loop_->OnStopRequested();
          twin_->OnStopRequested();
          stopped_ = true;
        }
        break;
    }
    Publish();
  }

  void Step(bool always_succeeds = false) {
    const Action action = loop_->Next();
    const Action again = loop_->Next();
    ASSERT_EQ(action.kind, again.kind);
    ASSERT_EQ(action.reason, again.reason);
    const Action twin = twin_->Next();
    ASSERT_EQ(action.kind, twin.kind) << action.reason << "; " << twin.reason;
    ASSERT_EQ(action.reason, twin.reason);
    ASSERT_EQ(action.fragment, twin.fragment);
    ASSERT_EQ(action.version, twin.version);
    ASSERT_EQ(action.seq, twin.seq);
    ASSERT_EQ(action.step, twin.step);
    ASSERT_EQ(action.data_position, twin.data_position);
    ASSERT_EQ(action.contributions, twin.contributions);
    ASSERT_FALSE(action.reason.empty());
    if (stopped_) {
      ASSERT_NE(action.kind, ActionKind::kTrain);
      ASSERT_NE(action.kind, ActionKind::kBeginRound);
      ASSERT_NE(action.kind, ActionKind::kContribute);
    }
    absl::Status status;
    if (!always_succeeds && Roll(5) == 0) {
      status = absl::UnavailableError("test");
    }
    switch (action.kind) {
      case ActionKind::kFinish:
        NewLife();
        return;
      case ActionKind::kWait:
        loop_->OnWaited();
        twin_->OnWaited();
        return;
      case ActionKind::kLoadSave:
        ASSERT_FALSE(save_loaded_);
        save_loaded_ = true;
        saved_in_memory_ = save_;
        loop_->OnSaveLoaded(save_);
        twin_->OnSaveLoaded(save_);
        return;
      case ActionKind::kPull:
        ASSERT_EQ(action.version, Version(action.fragment));
        if (status.ok()) held_[action.fragment] = action.version;
        break;
      case ActionKind::kBeginRound:
        for (int32_t f = 0; f < fragment_count_; ++f) {
          ASSERT_EQ(held_[f], Version(f));
        }
        anchors_ = held_;
        status = absl::OkStatus();
        break;
      case ActionKind::kTrain:
        CheckTrain(action);
        status = absl::OkStatus();
        break;
      case ActionKind::kContribute:
        CheckContribute(action);
        if (status.ok()) Save(action);
        break;
      case ActionKind::kPush:
        CheckPush(action);
        if (status.ok()) {
          stored_[{action.fragment, Version(action.fragment)}] = action.seq;
          Have(action.fragment);
        }
        break;
      case ActionKind::kRestoreSave:
        ASSERT_TRUE(save_.has_value());
        break;
      default:
        break;
    }
    Done(action, status);
  }

  void CheckTrain(const Action& action) {
    ASSERT_EQ(anchors_, held_) << "anchors changed within a round";
    ASSERT_EQ(plan_.run_state(), v1::RUN_STATE_ACTIVE);
    for (int64_t w = action.data_position; w < action.data_position + kBatch;
         ++w) {
      ASSERT_TRUE(read_.insert({action.data_shard, w}).second)
          << "window " << w << " read twice in one life";
    }
  }
  void CheckContribute(const Action& action) {
    ASSERT_GT(action.seq, seq_max_);
    ASSERT_FALSE(action.contributions.empty());
    ASSERT_EQ(action.data_position - action.data_begin,
              action.step_count * kBatch);
    for (const AnchoredFragment& at : action.contributions) {
      ASSERT_EQ(at.anchor_version, anchors_[at.fragment]);
      ASSERT_EQ(at.anchor_version, Version(at.fragment));
    }
  }
  void Save(const Action& action) {
    seq_max_ = action.seq;
    SaveSummary save;
    save.run_id = kRun;
    save.run_epoch = 1;
    save.slot = kSlot;
    save.seq = action.seq;
    save.contributions = action.contributions;
    save.data_shard = action.data_shard;
    save.data_position = action.data_position;
    save_ = save;
    saved_in_memory_ = save;
    acknowledged_seq_ = AcknowledgedSeq(save, {});
  }
  void CheckPush(const Action& action) {
    // Only saved contributions, and only while the round is open.
    ASSERT_TRUE(saved_in_memory_.has_value());
    ASSERT_EQ(action.seq, saved_in_memory_->seq);
    const auto& parts = saved_in_memory_->contributions;
    const auto part = std::find_if(
        parts.begin(), parts.end(), [&](const AnchoredFragment& at) {
          return at.fragment == action.fragment;
        });
    ASSERT_NE(part, parts.end());
    ASSERT_EQ(part->anchor_version, Version(action.fragment));
    ASSERT_EQ(decided_.count({action.fragment, action.seq}), 0);
  }

  // With a coordinator that works, the run reaches its end.
  void Calm() {
    NewLife();
    plan_.set_run_state(v1::RUN_STATE_ACTIVE);
    for (int i = 0; i < 20000; ++i) {
      ASSERT_FALSE(HasFatalFailure());
      bool done = true;
      for (int32_t f = 0; f < fragment_count_; ++f) {
        done &= Version(f) >= kRounds;
        const v1::OpenRound* open = FindOpen(f);
        const bool expected =
            open != nullptr &&
            std::any_of(open->slots().begin(), open->slots().end(),
                        [](const v1::SlotPlan& s) {
                          return s.slot() == kSlot;
                        });
        const auto stored = stored_.find({f, Version(f)});
        const bool received = stored != stored_.end() &&
                              decided_.count({f, stored->second}) == 0;
        if (Version(f) < kRounds && (!expected || received)) {
          if (open == nullptr && Roll(2) == 0) {
            Open(f);
          } else {
            Commit(f);
          }
          Publish();
        }
      }
      if (done) {
        plan_.set_run_state(v1::RUN_STATE_COMPLETED);
        Publish();
      }
      if (done && loop_->Next().kind == ActionKind::kFinish) {
        EXPECT_TRUE(loop_->Next().status.ok());
        return;
      }
      Step(true);
    }
    FAIL() << "the run does not end; the loop does "
           << ActionName(loop_->Next().kind) << ": " << loop_->Next().reason;
  }

  std::mt19937_64 random_;
  const int32_t fragment_count_;
  std::unique_ptr<IslandLoop> loop_, twin_;
  std::vector<int64_t> held_, anchors_;
  std::optional<SaveSummary> save_;             // On disk.
  std::optional<SaveSummary> saved_in_memory_;  // What a push would send.
  bool save_loaded_ = false;
  bool stopped_ = false;
  int64_t seq_max_ = 0;
  int64_t acknowledged_seq_ = 0;
  int64_t left_out_count_ = 0;
  std::set<std::pair<int32_t, int64_t>> read_;  // Shard, window; this life.
  std::map<std::pair<int32_t, int64_t>, int64_t> stored_;  // -> seq.
  std::set<std::pair<int32_t, int64_t>> decided_;  // Fragment, seq.
};

TEST(IslandLoopRandomTest, HoldsWhateverHappens) {
  std::random_device device;
  const uint64_t first = (uint64_t{device()} << 32) | device();
  int64_t left_out_count = 0;
  for (uint64_t seed = first; seed < first + 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    World world(seed);
    world.Run();
    left_out_count += world.left_out_count();
    if (testing::Test::HasFailure()) {
      std::cout << "seed " << seed << "\n";
      return;
    }
  }
  EXPECT_GT(left_out_count, 0);
}

}  // namespace
}  // namespace atl::worker
