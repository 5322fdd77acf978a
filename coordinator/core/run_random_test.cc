// Runs in a random order of pushes, plans, leaves, restarts and refusals. The
// log keeps its invariants, and the run ends once it is left alone.

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/features/features.h"
#include "base/layout/fragment_schedule.h"
#include "base/layout/run_timing.h"
#include "coordinator/core/testing/run_simulation.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

constexpr int kIslands = 4;

std::string IslandId(int i) { return "i" + std::to_string(i); }

class RandomRun {
 public:
  RandomRun(const v1::RunSpec& spec, uint64_t seed,
            int64_t contributions_a_step)
      : run_(spec, contributions_a_step),
        random_(seed),
        kinds_(AnyWeights()) {}

  void Go(int step_count) {
    run_.merge_norm_squared_max = 0x1p130;
    run_.share_of_token = 0;
    run_.features = ProgramFeatures();
    run_.sends_whole = [this] { return Pick(8) == 0; };
    run_.loses_answer = [this] { return Pick(12) == 0; };
    run_.StartServers();
    for (int i = 0; i < kIslands; ++i) {
      run_.Join(IslandId(i), i % 2 == 0 ? "token" : "").IgnoreError();
      run_.Ready(IslandId(i)).IgnoreError();
    }
    const bool is_strict =
        run_.state().spec().schedule().timing() == v1::TIMING_STRICT;
    for (int step = 0; step < step_count; ++step) {
      // In a strict run the simulation knows every refusal; not those by norm.
      const double norms_squared[] = {2, 2, 2, 2, 1000, 0x1p140};
      run_.push_norm_squared = norms_squared[is_strict ? 0 : Pick(6)];
      Step();
    }
    run_.CheckLog();
  }

  // From here on nothing fails, so the run must end.
  void Finish() {
    run_.finite = true;
    run_.loses_answer = nullptr;
    run_.push_norm_squared = 2;
    run_.stalled = false;
    for (int32_t s = 0; s < run_.shard_count(); ++s) run_.SetFault(s, "");
    for (int round = 0; round < 800 && !run_.state().ended(); ++round) {
      for (int i = 0; i < kIslands; ++i) {
        const std::string id = IslandId(i);
        run_.Remove(id, /*readmit=*/true).IgnoreError();
        if (!run_.machine().CheckIsland(run_.Credentials(id)).ok()) {
          run_.Join(id).IgnoreError();
        }
        run_.Ready(id).IgnoreError();
        run_.SetStream(id, /*is_open=*/true);
      }
      run_.machine().Step(event::Resume{}, run_.now()).status().IgnoreError();
      run_.Settle();
      run_.Pass(absl::Seconds(2));
    }
    EXPECT_TRUE(run_.state().ended()) << run_.machine().waits_for();
    const v1::ScheduleSpec& schedule = run_.state().spec().schedule();
    if (schedule.round_count() == 0 &&
        run_.state().state() == v1::RUN_STATE_COMPLETED) {
      EXPECT_GE(run_.state().merged_token_count(), schedule.token_count());
    }
    run_.FollowPlans();
    run_.FollowPlans();
    run_.CheckLog();
    run_.CheckAllDecided();
  }

  // A snapshot at any place plus the rest gives what the whole log gives. Two
  // snapshots of one state have equal bytes.
  void CheckSnapshots() {
    const std::vector<storage::v1::Record>& log = run_.log();
    std::set<int64_t> cuts = {1, static_cast<int64_t>(log.size())};
    for (int i = 0; i < 6; ++i) {
      cuts.insert(1 + Pick(static_cast<int>(log.size())));
    }
    RunState whole;
    std::map<int64_t, RunState> restored;  // By cut.
    for (const storage::v1::Record& record : log) {
      ASSERT_TRUE(whole.Apply(record).ok());
      for (auto& [cut, state] : restored) {
        ASSERT_TRUE(state.Apply(record).ok()) << "behind " << cut;
      }
      if (!cuts.contains(record.revision())) continue;
      storage::v1::RunSnapshot snapshot;
      ASSERT_TRUE(
          snapshot.ParseFromString(whole.ToSnapshot().SerializeAsString()));
      RunState& state = restored[record.revision()];
      ASSERT_TRUE(state.Restore(snapshot, record.revision()).ok());
      ASSERT_EQ(state.DebugString(), whole.DebugString());
    }
    for (const auto& [cut, state] : restored) {
      ASSERT_EQ(state.DebugString(), whole.DebugString()) << "cut " << cut;
      ASSERT_EQ(state.ToSnapshot().SerializeAsString(),
                whole.ToSnapshot().SerializeAsString())
          << "cut " << cut;
    }
  }
  int cut_count() const { return run_.cut_count; }
  int changes_count() const { return run_.changes_count(); }
  int refused_changes_count() const { return run_.refused_changes_count(); }
  int lost_count() const { return lost_count_; }
  int restored_count() const { return restored_count_; }

 private:
  int Pick(int count) {
    return std::uniform_int_distribution<int>(0, count - 1)(random_);
  }

  enum class Kind {
    kJoin,
    kReady,
    kLeave,
    kRemove,
    kReturn,
    kRestart,
    kLoseBatch,
    kRestartServer,
    kPass,
    kSilence,
    kRefuse,
    kRefuseLate,
    kNotFinite,
    kStall,
    kPause,
    kResume,
    kCancel,
    kPin,
    kRestore,
    kPushAll,
    kFollow,
    kLose,
    kPushAgain,
    kFault,
    kTrain,
    kEvaluate,
    kStream,
    kPush,
    kKindCount,
  };

  // Each run has its own frequencies: with all kinds frequent it hardly moves.
  std::discrete_distribution<int> AnyWeights() {
    std::vector<double> weights;
    for (int kind = 0; kind < static_cast<int>(Kind::kKindCount); ++kind) {
      const double weight[] = {0, 0.3, 1, 4};
      weights.push_back(weight[Pick(4)]);
    }
    weights[static_cast<int>(Kind::kCancel)] = Pick(8) == 0 ? 0.1 : 0;
    weights[static_cast<int>(Kind::kRestore)] = 1 + Pick(4);
    weights[static_cast<int>(Kind::kResume)] += 2;
    weights[static_cast<int>(Kind::kFollow)] += 3;
    weights[static_cast<int>(Kind::kPush)] += 6;
    return std::discrete_distribution<int>(weights.begin(), weights.end());
  }

  void Step() {
    const std::string id = IslandId(Pick(kIslands));
    const int32_t shard = Pick(run_.shard_count());
    const int32_t f = Pick(static_cast<int>(run_.state().fragments().size()));
    switch (static_cast<Kind>(kinds_(random_))) {
      case Kind::kJoin:
        run_.Join(id, Pick(2) == 0 ? "token" : "").IgnoreError();
        break;
      case Kind::kReady:
        run_.Ready(id).IgnoreError();
        break;
      case Kind::kLeave:
        // Sometimes with an unreported contribution.
        if (Pick(2) == 0) run_.Train(id, f);
        run_.Leave(id).IgnoreError();
        break;
      case Kind::kRemove:
        run_.Remove(id, /*readmit=*/Pick(2) == 0).IgnoreError();
        break;
      case Kind::kReturn:
        run_.Join(id).IgnoreError();
        run_.Ready(id).IgnoreError();
        break;
      case Kind::kRestart:
        run_.Restart(Pick(3) == 0 ? 0 : 1 + Pick(run_.log().size()));
        break;
      case Kind::kLoseBatch:
        run_.LoseNextBatch();
        break;
      case Kind::kRestartServer:
        run_.RestartServer(shard);
        break;
      case Kind::kPass:
        run_.Pass(absl::Milliseconds(500) * Pick(5));
        break;
      case Kind::kSilence:
        run_.Pass(absl::Seconds(31), {id});
        break;
      case Kind::kRefuse:
        run_.RefusePush(id, f, shard);
        break;
      case Kind::kRefuseLate:
        run_.RefuseLate(id, f, shard);
        break;
      case Kind::kNotFinite:
        run_.finite = Pick(8) != 0;
        break;
      case Kind::kStall:
        run_.stalled = Pick(4) == 0;
        break;
      case Kind::kPause:
        run_.machine().Step(event::Pause{}, run_.now()).status().IgnoreError();
        break;
      case Kind::kResume:
        run_.machine().Step(event::Resume{}, run_.now()).status().IgnoreError();
        break;
      case Kind::kCancel:
        run_.machine().Step(event::Cancel{}, run_.now()).status().IgnoreError();
        break;
      case Kind::kPin:
        Pin();
        break;
      case Kind::kRestore:
        Restore();
        break;
      case Kind::kPushAll:
        run_.PushAll(id);
        break;
      case Kind::kFollow:
        run_.FollowPlan(shard, Pick(2) == 0);
        break;
      case Kind::kLose:
        if (run_.Lose(id, f, shard)) ++lost_count_;
        break;
      case Kind::kPushAgain:
        run_.PushAgain(id);
        break;
      case Kind::kFault:
        run_.SetFault(shard, Pick(3) == 0 ? "DATA_LOSS: test" : "");
        break;
      case Kind::kTrain:
        run_.Train(id, f);
        break;
      case Kind::kEvaluate:
        run_.Evaluate(id, Pick(8), 1 + Pick(100)).IgnoreError();
        break;
      case Kind::kStream:
        run_.SetStream(id, /*is_open=*/Pick(2) == 0);
        break;
      case Kind::kPush:
      case Kind::kKindCount:
        run_.Push(id, f, shard);
        break;
    }
    run_.Flush();
  }

  // Leases or releases a cut. A holder always reads the same cut.
  void Pin() {
    v1::ExportCheckpointRequest request;
    const char* const ids[] = {"a", "b", "round-2", "final"};
    request.set_pin_id(ids[Pick(4)]);
    request.mutable_lease_duration()->set_seconds(1 + Pick(40));
    request.set_release(Pick(4) == 0);
    run_.machine().Step(event::Export{request}, run_.now()).IgnoreError();
  }

  // To any pin, to any commit, or to the newest checkpoint; in two of three
  // cases the islands come back at once.
  void Restore() {
    std::vector<std::string> sources = {"", "a", "b"};
    for (const auto& [pin_id, pin] : run_.state().pins()) {
      sources.push_back(pin_id);
    }
    sources.push_back("commit:" +
                      std::to_string(Pick(1 + run_.state().commit_seq())));
    // Most sources are refused: they are not there, or not durable.
    std::shuffle(sources.begin(), sources.end(), random_);
    const bool is_dry = Pick(4) == 0;
    bool is_restored = false;
    for (const std::string& source : sources) {
      const absl::StatusOr<v1::RestoreRunResponse> restored =
          run_.RestoreRun(source, is_dry);
      is_restored = restored.ok() && restored->changed();
      if (is_restored) break;
    }
    if (!is_restored) return;
    ++restored_count_;
    if (Pick(3) == 0) return;
    run_.FollowPlans();
    for (int i = 0; i < kIslands; ++i) run_.Ready(IslandId(i)).IgnoreError();
  }

  RunSimulation run_;
  std::mt19937_64 random_;
  std::discrete_distribution<int> kinds_;  // Of steps.
  int lost_count_ = 0;
  int restored_count_ = 0;
};

// Staggered, overlapping or blended, at random, but at least one of them.
void MakeStreaming(std::mt19937_64& random, v1::RunSpec& spec) {
  v1::ScheduleSpec& schedule = *spec.mutable_schedule();
  schedule.set_sample_fraction(1);
  schedule.set_inner_step_count(spec.layout().fragment_count() + 1 +
                                random() % 4);
  if (random() % 4 != 0) {
    schedule.set_fragment_schedule(v1::FRAGMENT_SCHEDULE_STAGGERED);
  }
  schedule.set_overlap_step_count(random() % schedule.inner_step_count());
  if (random() % 2 == 0) schedule.set_blend(0.5);
  if (!IsStreaming(schedule)) schedule.set_overlap_step_count(1);
}

class RandomRunTest
    : public testing::TestWithParam<v1::RunSpec (*)(int fragment_count)> {};

TEST_P(RandomRunTest, KeepsItsInvariantsInAnyOrder) {
  std::random_device device;
  int lost_count = 0;
  int restored_count = 0;
  int cut_count = 0;
  int changes_count = 0;
  int refused_changes_count = 0;
  int streaming_count = 0;
  bool is_async = false;
  for (int trial = 0; trial < 60; ++trial) {
    const uint64_t seed = device();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const int fragment_count = 1 + static_cast<int>(random() % 3);
    v1::RunSpec spec = GetParam()(fragment_count);
    const bool is_strict = spec.schedule().timing() == v1::TIMING_STRICT;
    is_async = IsAsync(spec.schedule());
    spec.mutable_schedule()->set_round_count(4 + random() % 6);
    // By rounds, by tokens (a round is at most 4 islands' 80), or both.
    if (random() % 2 == 0) {
      spec.mutable_schedule()->set_token_count(20 + random() % 1600);
      if (random() % 2 == 0) spec.mutable_schedule()->clear_round_count();
    }
    spec.mutable_schedule()->set_sample_fraction(
        random() % 2 || is_async ? 1 : 0.6);
    if (is_async) spec.mutable_schedule()->set_max_staleness(1 + random() % 4);
    spec.mutable_schedule()->mutable_round_deadline()->set_seconds(
        is_strict ? 0 : random() % 3 * 4);
    if (!is_strict && random() % 2 == 0) {
      spec.mutable_outer()->set_enrolled_norm_factor(1 + random() % 8);
    }
    spec.set_checkpoint_every_round_count(random() % 3);
    spec.set_server_count(2 + static_cast<int>(random() % 2));
    if (random() % 4 == 0) spec.mutable_data()->clear_fingerprint();
    const v1::MergeRuleKind rules[] = {v1::MERGE_RULE_KIND_WEIGHTED_MEAN,
                                       v1::MERGE_RULE_KIND_NORM_CLIP,
                                       v1::MERGE_RULE_KIND_CENTRED_CLIP};
    spec.mutable_outer()->mutable_merge()->set_rule(rules[random() % 3]);
    if (!is_async && random() % 3 == 0) {
      MakeStreaming(random, spec);
      ++streaming_count;
    }
    RandomRun run(spec, seed,
                  random() % 2 == 0 ? kContributionsAStep : 1 + random() % 4);
    run.Go(250);
    if (testing::Test::HasFailure()) return;
    run.Finish();
    lost_count += run.lost_count();
    restored_count += run.restored_count();
    cut_count += run.cut_count();
    changes_count += run.changes_count();
    refused_changes_count += run.refused_changes_count();
    if (testing::Test::HasFailure()) return;
    run.CheckSnapshots();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(lost_count, 10) << "too few losses to prove anything";
  EXPECT_GT(restored_count, 10) << "too few restores to prove anything";
  EXPECT_GT(cut_count, 100) << "too few to prove anything";
  EXPECT_GT(changes_count, 1000) << "too few to prove anything";
  EXPECT_GT(refused_changes_count, 100) << "too few to prove anything";
  EXPECT_EQ(streaming_count == 0, is_async);
}

INSTANTIATE_TEST_SUITE_P(EveryTiming, RandomRunTest,
                         testing::Values(&SimpleSpec, &ElasticSpec,
                                         &AsyncSpec));

}  // namespace
}  // namespace atl::coordinator
