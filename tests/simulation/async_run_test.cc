// A whole async run in one thread from one seed: the cores of the coordinator,
// the shards and the islands, with simulated time, transfers, arithmetic and
// disks. Islands have different speeds, and any process may die at any tick.
// Afterwards the test judges the log from its records alone.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/layout/run_timing.h"
#include "base/status/refusal.h"
#include "coordinator/core/outputs/plans.h"
#include "coordinator/core/run_machine.h"
#include "coordinator/core/testing/run_simulation.h"
#include "gtest/gtest.h"
#include "server/core/shard_machine.h"
#include "worker/core/island_loop.h"

namespace atl {
namespace {

using coordinator::RunMachine;
using server::ContributionKey;
using server::ShardMachine;
using worker::IslandLoop;

constexpr int kShards = 2;
constexpr int64_t kSteps = 8;  // H.
constexpr absl::Duration kTick = absl::Milliseconds(10);

// The state of a shard that outlives its process.
struct Disk {
  server::RecoveredShard kept;
  std::map<ContributionKey, server::StoredFact> stored;
};

struct Shard {
  Disk disk;
  std::unique_ptr<ShardMachine> machine;
  std::string reported;
  int64_t plan_revision = -1;
};

struct Island {
  std::string id;
  int ticks_a_step = 1;
  std::unique_ptr<IslandLoop> loop;
  std::optional<worker::Action> doing;  // Until `busy_until`.
  int64_t busy_until = 0;
  std::optional<worker::SaveSummary> save;
  std::vector<v1::ContributionInfo> contributions;  // In the local checkpoint.
  std::string secret;
  int64_t epoch = 0;
  int64_t plan_revision = -1;
  bool finished = false;
};

class World : public coordinator::ServerDirectory {
 public:
  // Plans and reports of a shard take about `ticks_a_message`.
  World(const v1::RunSpec& spec, std::vector<int> ticks_a_step, uint64_t seed,
        int ticks_a_message = 2)
      : spec_(spec), layout_(*RunLayout::Create(spec.layout())),
        ticks_a_message_(ticks_a_message), random_(seed),
        machine_(std::make_unique<RunMachine>(*this)) {
    machine_->Step(coordinator::event::Create{"run", spec_}, Now())
        .IgnoreError();
    for (int s = 0; s < kShards; ++s) {
      servers_["server-" + std::to_string(s)] = {
          "server-" + std::to_string(s), "h:1", 1, "", true};
    }
    machine_->Step(coordinator::event::Tick{}, Now()).IgnoreError();
    shards_.resize(kShards);
    for (int s = 0; s < kShards; ++s) {
      shards_[s].disk.kept.versions.assign(layout_.fragment_count(), -1);
      shards_[s].disk.kept.version0_digests.resize(layout_.fragment_count());
      StartShard(s);
    }
    for (size_t i = 0; i < ticks_a_step.size(); ++i) {
      Island& island = islands_.emplace_back();
      island.id = "island-" + std::to_string(i);
      island.ticks_a_step = ticks_a_step[i];
    }
    for (Island& island : islands_) StartIsland(island);
  }

  // True if the run completed within `tick_count`, with a death about every
  // `ticks_a_death` (0: none).
  bool Run(int64_t tick_count, int ticks_a_death) {
    // Time for the shards' last reports after the islands have ended.
    constexpr int kTicksAfter = 100;
    int ticks_after = 0;
    while (tick_ < tick_count) {
      ++tick_;
      machine_->Step(coordinator::event::Tick{}, Now()).IgnoreError();
      if (ticks_a_death > 0 && ticks_after == 0 && Roll(ticks_a_death) == 0) {
        Kill();
      }
      for (int s = 0; s < kShards; ++s) StepShard(s);
      for (Island& island : islands_) StepIsland(island);
      Collect();
      const bool all_done =
          std::all_of(islands_.begin(), islands_.end(),
                      [](const Island& island) { return island.finished; });
      if (all_done && ++ticks_after == kTicksAfter) return true;
    }
    std::printf("waits for: %s\n", machine_->waits_for().c_str());
    for (const Island& island : islands_) {
      std::printf("%s: %s\n", island.id.c_str(),
                  island.loop->Next().reason.c_str());
    }
    return false;
  }

  // Checks the invariants of every async run in the log.
  void Judge() {
    std::set<std::tuple<int32_t, int32_t, int64_t>> decided;
    std::map<int32_t, int64_t> versions;
    std::map<int32_t, v1::ContributionInfo> sealed;
    const auto decide = [&](const v1::ContributionOutcome& outcome) {
      const v1::ContributionKey& key = outcome.key();
      EXPECT_TRUE(
          decided.insert({key.fragment(), key.slot(), key.seq()}).second)
          << "decided twice: " << outcome.ShortDebugString();
      ++outcomes_[outcome.outcome()];
    };
    for (const storage::v1::Record& record : log_) {
      if (record.has_round_sealed()) {
        const storage::v1::RoundSealed& seal = record.round_sealed();
        ASSERT_EQ(seal.infos_size(), 1);
        sealed[seal.seal().fragment()] = seal.infos(0).info();
        EXPECT_TRUE(IsFreshEnough(spec_.schedule(),
                                  seal.infos(0).info().anchor_version(),
                                  seal.seal().version()));
      } else if (record.has_round_committed()) {
        const v1::Commit& commit = record.round_committed().commit();
        EXPECT_EQ(commit.version(), ++versions[commit.fragment()]);
        for (const auto& outcome : commit.outcomes()) decide(outcome);
        const v1::ContributionInfo& info = sealed[commit.fragment()];
        if (commit.fragment() == 0) {
          steps_[info.key().slot()].push_back(info.step_count());
          staleness_sum_ += commit.version() - 1 - info.anchor_version();
        }
      } else if (record.has_round_aborted()) {
        for (const auto& o : record.round_aborted().outcomes()) decide(o);
      } else if (record.has_outcomes_set()) {
        for (const auto& o : record.outcomes_set().outcomes()) decide(o);
      } else if (record.has_evaluated()) {
        evaluated_.insert(record.evaluated().evaluation().version());
      }
    }
    for (int32_t f = 0; f < layout_.fragment_count(); ++f) {
      EXPECT_EQ(versions[f], spec_.schedule().round_count());
    }
    for (const auto& key : stored_) {
      EXPECT_TRUE(decided.contains(key))
          << "never decided: fragment " << std::get<0>(key) << " slot "
          << std::get<1>(key) << " seq " << std::get<2>(key);
    }
  }

  const std::map<int32_t, std::vector<int64_t>>& steps() { return steps_; }
  const std::set<int64_t>& evaluated() { return evaluated_; }
  int64_t staleness_sum() const { return staleness_sum_; }
  int64_t tick() const { return tick_; }
  std::map<v1::Outcome, int>& outcomes() { return outcomes_; }

  // ServerDirectory:
  const coordinator::ServerInfo* FindServer(
      const std::string& id) const override {
    const auto found = servers_.find(id);
    return found == servers_.end() ? nullptr : &found->second;
  }
  std::vector<std::string> AliveServers() const override {
    std::vector<std::string> ids;
    for (const auto& [id, server] : servers_) ids.push_back(id);
    return ids;
  }

 private:
  uint64_t Roll(uint64_t n) { return random_() % n; }
  absl::Time Now() const { return absl::FromUnixSeconds(1000) + tick_ * kTick; }
  const coordinator::RunState& state() const { return machine_->state(); }

  void Collect() {
    for (storage::v1::Record& record : machine_->TakeRecords()) {
      log_.push_back(std::move(record));
    }
    if (machine_->TakePlanChange().any()) ++plan_revision_;
  }

  void Kill() {
    switch (Roll(3)) {
      case 0: {
        Collect();
        auto next = std::make_unique<RunMachine>(*this);
        for (const storage::v1::Record& record : log_) {
          ASSERT_TRUE(next->Replay(record).ok());
        }
        machine_ = std::move(next);
        machine_->Step(coordinator::event::Recovered{}, Now()).IgnoreError();
        ++coordinator_epoch_;
        ++plan_revision_;
        for (Shard& shard : shards_) shard.reported.clear();
        return;
      }
      case 1:
        return StartShard(static_cast<int>(Roll(kShards)));
      case 2:
        return StartIsland(islands_[Roll(islands_.size())]);
    }
  }

  // --- Shards ----------------------------------------------------------------

  void StartShard(int s) {
    Shard& shard = shards_[s];
    server::ShardShape shape;
    shape.run_id = "run";
    shape.shard = s;
    shape.layout_fingerprint = layout_.fingerprint();
    shape.max_staleness = spec_.schedule().max_staleness();
    for (int32_t f = 0; f < layout_.fragment_count(); ++f) {
      shape.fragments.push_back({true, false});
    }
    server::RecoveredShard recovered = shard.disk.kept;
    for (const auto& [key, fact] : shard.disk.stored) {
      recovered.stored.push_back(fact);
    }
    shard.machine =
        std::make_unique<ShardMachine>(shape, std::move(recovered));
    shard.reported.clear();
    shard.plan_revision = -1;
    const std::string id = "server-" + std::to_string(s);
    servers_[id].incarnation += 1;
    machine_
        ->Step(coordinator::event::ServerChanged{id, /*restarted=*/true}, Now())
        .IgnoreError();
  }

  void StepShard(int s) {
    Shard& shard = shards_[s];
    if (shard.plan_revision < plan_revision_ && Roll(ticks_a_message_) == 0) {
      shard.plan_revision = plan_revision_;
      shard.machine->OnPlan(
          BuildServerRunPlan(state(), machine_->observed(), s));
    }
    for (const server::ShardAction& action : shard.machine->NextActions()) {
      DoOnShard(shard, action);
    }
    ASSERT_EQ(shard.machine->fault(), "");
    v1::ShardReport report = shard.machine->Report();
    const std::string text = report.SerializeAsString();
    if (text == shard.reported || Roll(ticks_a_message_) != 0) return;
    shard.reported = text;
    machine_
        ->Step(coordinator::event::ShardReported{"server-" + std::to_string(s),
                                                 report},
               Now())
        .IgnoreError();
    Collect();
  }

  void DoOnShard(Shard& shard, const server::ShardAction& action) {
    server::RecoveredShard& kept = shard.disk.kept;
    switch (action.kind) {
      case server::ActionKind::kMakeVersion0:
        kept.run_epoch = 1;
        kept.versions[action.fragment] = 0;
        kept.version0_digests[action.fragment] = Digest128{0, 7};
        kept.held.insert({action.fragment, 0});
        return shard.machine->OnVersion0(action.fragment, {Digest128{0, 7}});
      case server::ActionKind::kPrepare: {
        server::PreparedFact fact;
        fact.fragment = action.fragment;
        fact.version = action.version;
        fact.attempt = action.attempt;
        fact.digest.low = action.version + 100;
        return shard.machine->OnPrepared(fact);
      }
      case server::ActionKind::kPersist:
        kept.persisted_commit_seq = action.commit.commit_seq();
        kept.versions[action.fragment] = action.version;
        kept.held.insert({action.fragment, action.version});
        for (const ContributionKey& key : action.keys) {
          shard.disk.stored.erase(key);
        }
        return shard.machine->OnPersisted(action.commit.commit_seq());
      case server::ActionKind::kDrop:
        for (const ContributionKey& key : action.keys) {
          shard.disk.stored.erase(key);
        }
        return;
      case server::ActionKind::kRelease:
        kept.held.erase({action.fragment, action.version});
        return;
      case server::ActionKind::kWriteManifest:
        return shard.machine->OnManifestWritten(action.pin.pin_id());
      default:
        return;
    }
  }

  // --- Islands ---------------------------------------------------------------

  void StartIsland(Island& island) {
    if (state().ended()) return;
    island.loop = std::make_unique<IslandLoop>("run");
    island.doing.reset();
    island.busy_until = tick_ + Roll(20);
    v1::JoinRequest request;
    request.set_run_id("run");
    request.set_island_id(island.id);
    request.mutable_capabilities()->add_devices()->set_kind("cpu");
    request.mutable_capabilities()->set_data_fingerprint(
        spec_.data().fingerprint());
    request.mutable_capabilities()->set_tokens_per_second(
        1000.0 / island.ticks_a_step);
    island.secret = std::string(32, 's');
    absl::StatusOr<coordinator::RunAnswer> answer =
        machine_->Step(coordinator::event::Join{request, island.secret}, Now());
    if (HasReason(answer.status(), "TOO_MANY_CALLS")) {
      island.epoch = 0;  // It asks again with its next step.
      return;
    }
    ASSERT_TRUE(answer.ok()) << answer.status();
    Collect();
    v1::JoinResponse& joined = answer->joined;
    island.epoch = joined.island_epoch();
    *joined.mutable_run()->mutable_spec() = spec_;
    joined.mutable_run()->set_run_epoch(1);
    *joined.mutable_plan() = MakePlan(island);
    island.loop->OnJoined(joined);
  }

  int32_t FindSlot(const Island& island) const {
    return state().FindMember(island.id)->record.slot();
  }

  v1::IslandPlan MakePlan(Island& island) {
    v1::IslandPlan plan =
        BuildSharedIslandPlan(state(), machine_->observed(), *this);
    AddIsland(state(), machine_->observed(), FindSlot(island), plan);
    plan.set_coordinator_epoch(coordinator_epoch_);
    plan.set_revision(plan_revision_);
    island.plan_revision = plan_revision_;
    return plan;
  }

  coordinator::IslandCredentials Who(const Island& island) const {
    return {island.id, island.epoch, island.secret};
  }

  void StepIsland(Island& island) {
    if (island.finished) return;
    if (!machine_->CheckIsland(Who(island)).ok() && !state().ended()) {
      return StartIsland(island);
    }
    machine_->Step(coordinator::event::Heartbeat{Who(island)}, Now())
        .status()
        .IgnoreError();
    if (island.plan_revision < plan_revision_ && Roll(2) == 0) {
      island.loop->OnPlan(MakePlan(island));
    }
    if (tick_ < island.busy_until) return;
    if (island.doing.has_value()) {
      const worker::Action done = *island.doing;
      island.doing.reset();
      island.loop->OnDone(done, Finish(island, done));
    }
    const worker::Action action = island.loop->Next();
    switch (action.kind) {
      case worker::ActionKind::kWait:
        if (action.failure_count > 0) island.loop->OnWaited();
        return;
      case worker::ActionKind::kLoadSave:
        return island.loop->OnSaveLoaded(island.save);
      case worker::ActionKind::kFinish:
        EXPECT_TRUE(action.status.ok()) << action.status;
        island.finished = true;
        return;
      case worker::ActionKind::kTrain:
        island.busy_until = tick_ + island.ticks_a_step;
        break;
      case worker::ActionKind::kPush:
      case worker::ActionKind::kPull:
        island.busy_until = tick_ + 1 + Roll(6);
        break;
      default:
        break;
    }
    island.doing = action;
  }

  absl::Status Finish(Island& island, const worker::Action& action) {
    switch (action.kind) {
      case worker::ActionKind::kReportReady:
        return machine_
            ->Step(coordinator::event::Ready{Who(island), action.commit_seq},
                   Now())
            .status();
      case worker::ActionKind::kPull:
        return Pull(action);
      case worker::ActionKind::kContribute:
        Contribute(island, action);
        return absl::OkStatus();
      case worker::ActionKind::kPush:
        return Push(island, action);
      case worker::ActionKind::kEvaluate:
        return Evaluate(island, action);
      default:
        return absl::OkStatus();
    }
  }

  absl::Status Pull(const worker::Action& action) {
    for (const Shard& shard : shards_) {
      const int64_t newest = shard.machine->version(action.fragment);
      if (action.version > newest) return absl::UnavailableError("not yet");
      if (action.version + 2 < newest) return absl::OutOfRangeError("gone");
    }
    return absl::OkStatus();
  }

  absl::Status Evaluate(Island& island, const worker::Action& action) {
    v1::ReportProgressRequest request;
    request.add_evaluations()->set_version(action.version);
    request.mutable_evaluations(0)->set_commit_seq(action.commit_seq);
    request.mutable_evaluations(0)->set_loss(1);
    return machine_
        ->Step(coordinator::event::Progress{Who(island), request}, Now())
        .status();
  }

  void Contribute(Island& island, const worker::Action& action) {
    worker::SaveSummary save;
    save.run_id = "run";
    save.run_epoch = 1;
    save.slot = action.slot;
    save.seq = action.seq;
    save.contributions = action.contributions;
    save.data_shard = action.data_shard;
    save.data_position = action.data_position;
    island.save = save;
    island.contributions.clear();
    for (const worker::AnchoredFragment& at : action.contributions) {
      v1::ContributionInfo& info = island.contributions.emplace_back();
      info.mutable_key()->set_run_epoch(1);
      info.mutable_key()->set_fragment(at.fragment);
      info.mutable_key()->set_slot(action.slot);
      info.mutable_key()->set_seq(action.seq);
      info.set_anchor_version(at.anchor_version);
      info.mutable_digest()->set_low(action.seq);
      info.set_codec(v1::CODEC_F32);
      info.set_step_count(action.step_count);
      info.set_token_count(action.step_count * 20);
      info.set_data_shard(action.data_shard);
      info.set_data_begin(action.data_begin);
      info.set_data_end(action.data_position);
    }
  }

  absl::Status Push(Island& island, const worker::Action& action) {
    for (const v1::ContributionInfo& info : island.contributions) {
      if (info.key().fragment() != action.fragment) continue;
      v1::PushHeader header;
      header.set_run_id("run");
      header.set_island_id(island.id);
      header.set_island_epoch(island.epoch);
      header.set_layout_fingerprint(layout_.fingerprint());
      header.set_placement_epoch(1);
      *header.mutable_info() = info;
      for (int s = 0; s < kShards; ++s) {
        header.set_shard(s);
        Shard& shard = shards_[s];
        const absl::Status admitted = shard.machine->AdmitPush(
            header,
            state().FindMember(island.id)->record.session_sha256());
        if (!admitted.ok()) return admitted;
        if (Roll(10) == 0) return absl::UnavailableError("the link broke");
        const auto key = ContributionKey::FromProto(info.key());
        shard.machine->OnBound(info);
        shard.machine->OnStored(info, 1);
        shard.disk.stored[key] = {info, 1};
        stored_.insert({key.fragment, key.slot, key.seq});
      }
    }
    return absl::OkStatus();
  }

  const v1::RunSpec spec_;
  const RunLayout layout_;
  const int ticks_a_message_;
  std::mt19937_64 random_;
  int64_t tick_ = 0;
  std::map<std::string, coordinator::ServerInfo> servers_;
  std::unique_ptr<RunMachine> machine_;
  std::vector<storage::v1::Record> log_;
  int64_t plan_revision_ = 0;
  int64_t coordinator_epoch_ = 1;
  std::vector<Shard> shards_;
  std::vector<Island> islands_;
  std::set<std::tuple<int32_t, int32_t, int64_t>> stored_;

  std::map<int32_t, std::vector<int64_t>> steps_;  // By slot, fragment 0.
  std::set<int64_t> evaluated_;
  std::map<v1::Outcome, int> outcomes_;
  int64_t staleness_sum_ = 0;
};

v1::RunSpec Spec(int fragment_count, int64_t round_count) {
  v1::RunSpec spec = coordinator::AsyncSpec(fragment_count);
  spec.mutable_schedule()->set_inner_step_count(kSteps);
  spec.mutable_schedule()->set_round_count(round_count);
  spec.mutable_schedule()->set_max_staleness(8);
  spec.mutable_evaluation()->set_every_round_count(4);
  spec.mutable_evaluation()->set_batch_count(1);
  spec.mutable_data()->set_validation_fraction(0.1);
  return spec;
}

uint64_t NewSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

TEST(AsyncRunTest, ASlowIslandTakesFewerStepsAsOftenAsTheOthers) {
  const uint64_t seed = NewSeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  World world(Spec(1, 80), {5, 5, 5, 20}, seed);
  ASSERT_TRUE(world.Run(20000, 0));
  world.Judge();
  ASSERT_EQ(world.steps().size(), 4u);
  for (const auto& [slot, steps] : world.steps()) {
    // DyLU: about H steps, or about a quarter of them for the slow island. The
    // measured time has the exchange, so equal islands differ.
    double sum = 0;
    for (const int64_t count : steps) sum += static_cast<double>(count);
    const double mean = sum / static_cast<double>(steps.size());
    EXPECT_LE(mean, slot == 3 ? 0.5 * kSteps : kSteps);
    EXPECT_GE(mean, slot == 3 ? 1 : 0.6 * kSteps);
    EXPECT_GE(steps.size(), 12u) << "slot " << slot;
  }
  // Four islands at the same pace: three other versions come in between.
  EXPECT_NEAR(static_cast<double>(world.staleness_sum()) / 80, 3, 0.7);
  // Every period is evaluated, and so is the last version.
  EXPECT_TRUE(world.evaluated().contains(80));
  EXPECT_GE(world.evaluated().size(), 17u);
}

TEST(AsyncRunTest, EndsWithEveryOutcomeRecordedWhoeverDiesWhen) {
  std::map<v1::Outcome, int> outcomes;
  for (int trial = 0; trial < 30; ++trial) {
    const uint64_t seed = NewSeed();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    v1::RunSpec spec = Spec(1 + random() % 3, 60);
    spec.mutable_schedule()->set_max_staleness(1 + random() % 6);
    World world(spec,
                {1 + static_cast<int>(random() % 9), 5,
                 1 + static_cast<int>(random() % 30)},
                seed, 2 + static_cast<int>(random() % 7));
    ASSERT_TRUE(world.Run(60000, 60));
    world.Judge();
    if (testing::Test::HasFailure()) return;
    for (const auto& [outcome, count] : world.outcomes()) {
      outcomes[outcome] += count;
    }
  }
  std::printf("merged %d, stale %d, late %d, dropped %d\n",
              outcomes[v1::OUTCOME_MERGED], outcomes[v1::OUTCOME_STALE],
              outcomes[v1::OUTCOME_LATE], outcomes[v1::OUTCOME_DROPPED]);
  EXPECT_GT(outcomes[v1::OUTCOME_STALE], 0) << "nothing was ever too old";
}

}  // namespace
}  // namespace atl
