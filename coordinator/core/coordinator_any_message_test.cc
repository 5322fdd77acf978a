// Mixes requests that no honest peer sends into those of two runs. The
// coordinator refuses them or continues. Every plan and answer can be built,
// and its log gives its state, with and without snapshots.

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/features/features.h"
#include "base/testing/mutator.h"
#include "coordinator/core/coordinator.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/core/testing/run_simulation.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

constexpr int kServers = 2;
constexpr int kIslands = 3;
const char* const kRuns[] = {"one", "two"};

class CoordinatorAnyMessageTest : public testing::Test {
 protected:
  CoordinatorAnyMessageTest() : seed_(std::random_device()()), any_(seed_) {
    // Printed first, because a failure may end the process.
    std::printf("seed: %llu\n", static_cast<unsigned long long>(seed_));
    std::fflush(stdout);
  }

  void Begin() {
    options_.snapshots.log_records_max =
        5 + static_cast<int64_t>(any_.Pick(50));
    entries_.clear();
    snapshots_.clear();
    batch_count_ = 0;
    pushed_.clear();
    islands_.clear();
    core_ = std::make_unique<Coordinator>(options_);
    core_->Start(now_, {"cluster", absl::StrCat("start", ++start_count_)},
                 batch_count_);
    for (const char* run_id : kRuns) Create(run_id);
    for (int s = 0; s < kServers; ++s) Register(s);
    Take();
  }

  void Create(const std::string& run_id) {
    v1::RunSpec (*const kinds[])(int) = {&SimpleSpec, &ElasticSpec, &AsyncSpec};
    v1::CreateRunRequest request;
    request.set_run_id(run_id);
    *request.mutable_spec() = kinds[any_.Pick(3)](1 + any_.Pick(2));
    request.mutable_spec()->mutable_schedule()->set_round_count(100);
    request.mutable_spec()->mutable_history()->set_keep_round_count(
        1 + static_cast<int64_t>(any_.Pick(5)));
    const auto created =
        core_->CreateRun(request, now_, absl::StrCat("uid-", ++created_count_));
    ASSERT_TRUE(created.ok()) << created.status();
  }

  // Ends and deletes a run. Another one has its id at once.
  void Replace(const std::string& run_id) {
    (*core_->FindRun(run_id))->Step(event::Cancel{}, now_).IgnoreError();
    const auto deleted = core_->DeleteRun(run_id, "", now_);
    ASSERT_TRUE(deleted.ok()) << deleted.status();
    pushed_.erase(run_id);
    std::erase_if(islands_, [&](const auto& island) {
      return island.first.first == run_id;
    });
    Create(run_id);
    ++deleted_count_;
  }

  // Changes one message in eight.
  template <typename Message>
  Message Maybe(Message message) {
    if (any_.Pick(8) != 0) return message;
    any_.Change(message);
    ++changed_count_;
    return message;
  }

  void Register(int server) {
    v1::RegisterServerRequest request;
    request.set_server_id(absl::StrCat("server-", server));
    request.set_address("127.0.0.1:1");
    request.set_incarnation(1);
    request.set_features(ProgramFeatures());
    core_->RegisterServer(request, now_).status().IgnoreError();
  }

  // An honest server's report of its plan, altered or cut in places.
  void Report(int server, bool all_whole = false) {
    v1::ReportShardsRequest request;
    request.set_server_id(absl::StrCat("server-", server));
    request.set_incarnation(1);
    request.set_report_seq(++report_seq_);
    const v1::ServerPlan plan = core_->ServerPlan(request.server_id());
    request.set_plan_revision(plan.revision());
    for (const v1::ServerRunPlan& run : plan.runs()) {
      const bool is_whole = all_whole || any_.Pick(3) != 0;
      v1::ShardReport& report =
          is_whole ? *request.add_shards() : *request.add_changes();
      if (!is_whole) {
        // The report before may be another server's.
        report.set_base_report_seq(report_seq_ - 1 -
                                   static_cast<int64_t>(any_.Pick(3)));
        for (const v1::ContributionInfo& info : pushed_[run.run_id()]) {
          if (any_.Pick(4) == 0) *report.add_gone() = info.key();
        }
      }
      report.set_run_id(run.run_id());
      report.set_run_uid(run.run_uid());
      report.set_run_epoch(1);
      report.set_shard(run.shard());
      report.set_initialized(true);
      const auto fragments =
          (*core_->FindRun(run.run_id()))->state().fragments().size();
      for (size_t f = 0; f < fragments; ++f) report.add_version0_digests();
      report.set_persisted_commit_seq(run.commit_seq());
      for (const v1::ContributionInfo& info : pushed_[run.run_id()]) {
        *report.add_stored()->mutable_info() = info;
      }
      for (const v1::Seal& seal : run.seals()) {
        v1::PreparedRound& prepared = *report.add_prepared();
        prepared.set_fragment(seal.fragment());
        prepared.set_version(seal.version());
        prepared.set_attempt(seal.attempt());
        prepared.set_finite(true);
      }
      const auto parts_left = static_cast<int32_t>(any_.Pick(6));
      if (parts_left >= 3) continue;
      // The next report brings the other parts, or parts that do not fit.
      report.set_part(static_cast<int32_t>(any_.Pick(2)));
      report.set_parts_left(parts_left);
    }
    const auto answer = core_->ReportShards(Maybe(request), now_);
    if (answer.ok() && !answer->whole_report_run_ids().empty() && !all_whole) {
      Report(server, /*all_whole=*/true);
    }
  }

  // An island pushes what its plan asks for, to all shards.
  void Push(const std::string& run_id, int32_t slot) {
    RunMachine& run = **core_->FindRun(run_id);
    if (slot >= static_cast<int32_t>(run.state().members().size())) return;
    const v1::IslandPlan told = core_->IslandPlan(run, slot);
    for (const v1::OpenRound& open : told.open_rounds()) {
      for (const v1::SlotPlan& plan : open.slots()) {
        v1::ContributionInfo info;
        info.mutable_key()->set_run_epoch(1);
        info.mutable_key()->set_fragment(open.fragment());
        info.mutable_key()->set_slot(plan.slot());
        info.mutable_key()->set_seq(1 + open.version());
        info.set_anchor_version(open.version());
        info.set_codec(v1::CODEC_F32);
        info.set_step_count(plan.step_count());
        info.set_token_count(80);
        info.set_data_shard(plan.data_shard());
        info.set_data_end(plan.data_position() + 8);
        pushed_[run_id].push_back(Maybe(info));
      }
    }
    while (pushed_[run_id].size() > 12) {
      pushed_[run_id].erase(pushed_[run_id].begin());
    }
  }

  void Join(const std::string& run_id, const std::string& island_id) {
    v1::JoinRequest request;
    request.set_run_id(run_id);
    request.set_island_id(island_id);
    request.mutable_capabilities()->add_devices()->set_kind("cpu");
    request.mutable_capabilities()->set_data_fingerprint(
        (*core_->FindRun(run_id))->state().spec().data().fingerprint());
    const auto answer =
        (*core_->FindRun(run_id))
            ->Step(event::Join{Maybe(request), std::string(32, 's')}, now_);
    if (!answer.ok()) return;
    islands_[{run_id, island_id}] = {island_id, answer->joined.island_epoch(),
                                     std::string(32, 's')};
  }

  void Island(RunMachine& run, const IslandCredentials& island) {
    IslandCredentials who = island;
    if (any_.Pick(20) == 0) who.island_epoch += any_.Pick(3);
    if (any_.Pick(20) == 0) who.session_secret = "another";
    const int64_t commit_seq = run.state().commit_seq();
    switch (any_.Pick(6)) {
      case 0: {
        v1::ReportProgressRequest request;
        request.set_loss(1);
        request.set_loss_step_count(2);
        request.add_evaluations()->set_loss(1);
        run.Step(event::Progress{who, Maybe(request)}, now_)
            .status()
            .IgnoreError();
        return;
      }
      case 1:
        if (any_.Pick(8) == 0)
          run.Step(event::Leave{who}, now_).status().IgnoreError();
        return;
      case 2:
        run.Step(event::Ready{who, commit_seq + static_cast<int64_t>(
                                                    any_.Pick(20) / 19)},
                 now_)
            .IgnoreError();
        return;
      case 3:
        run.Step(event::PlanStream{who, any_.Pick(2) == 0}, now_)
            .status()
            .IgnoreError();
        return;
      default: {
        v1::HeartbeatRequest request;
        request.set_acknowledged_seq(1);
        request.set_phase(v1::ISLAND_PHASE_DATA);
        request.set_phase_reason("waits");
        request.mutable_progress()->set_loss(1);
        request = Maybe(request);
        run.Step(event::Heartbeat{who, &request}, now_).status().IgnoreError();
        run.Step(event::Ready{who, commit_seq}, now_).status().IgnoreError();
      }
    }
  }

  void Operate(RunMachine& run) {
    v1::ExportCheckpointRequest pin;
    pin.set_pin_id(absl::StrCat("pin-", any_.Pick(20)));
    pin.mutable_lease_duration()->set_seconds(1 + any_.Pick(30));
    pin.set_keep_bytes_max(any_.Pick(2) * 200'000);
    switch (any_.Pick(8)) {
      case 0:
        if (any_.Pick(3) == 0)
          run.Step(event::Pause{}, now_).status().IgnoreError();
        return;
      case 1:
        if (any_.Pick(50) == 0)
          run.Step(event::Cancel{}, now_).status().IgnoreError();
        return;
      case 2:
        run.Step(event::RemoveIsland{absl::StrCat("i", any_.Pick(kIslands + 1)),
                                     /*readmit=*/any_.Pick(20) != 0},
                 now_)
            .status()
            .IgnoreError();
        return;
      case 3:
        run.Step(event::Export{Maybe(pin)}, now_).IgnoreError();
        return;
      case 4: {
        v1::CreateRunRequest request;
        request.set_run_id("three");
        *request.mutable_spec() = SimpleSpec();
        request = Maybe(request);
        request.set_validate_only(true);
        core_->CreateRun(request, now_).status().IgnoreError();
        return;
      }
      case 5:
        if (any_.Pick(5) == 0) Replace(std::string(run.state().run_id()));
        return;
      default:
        run.Step(event::Resume{}, now_).status().IgnoreError();
    }
  }

  template <typename Items, typename Name>
  static std::vector<std::string> Names(const Items& items, const Name& name) {
    std::vector<std::string> names;
    for (const auto& item : items) names.push_back(name(item));
    return names;
  }

  void Read(RunMachine& run) {
    v1::ListRunsRequest runs;
    runs.set_page_size(1);
    PlanRuns(Names(BuildRuns(core_->ListRuns()).runs(),
                   [](const v1::Run& one) { return one.run_id(); }),
             Maybe(runs))
        .status()
        .IgnoreError();
    v1::ListIslandsRequest islands;
    islands.set_page_token("1");
    PlanIslands(BuildIslands(run).islands_size(), Maybe(islands))
        .status()
        .IgnoreError();
    v1::ListCheckpointsRequest checkpoints;
    checkpoints.set_page_size(1);
    PlanCheckpoints(Names(BuildCheckpoints(run).checkpoints(), CheckpointName),
                    Maybe(checkpoints))
        .status()
        .IgnoreError();
    v1::ListRoundsRequest rounds;
    rounds.set_page_token("2");
    PlanRounds(run.state(), Maybe(rounds)).status().IgnoreError();
    BuildMetrics(run, core_->series(run.state().run_id()));
  }

  void Step() {
    const std::string run_id = kRuns[any_.Pick(2)];
    RunMachine& run = **core_->FindRun(run_id);
    const std::string island_id = absl::StrCat("i", any_.Pick(kIslands));
    const auto island = islands_.find({run_id, island_id});
    switch (any_.Pick(12)) {
      case 0:
        if (island == islands_.end() || any_.Pick(10) == 0) {
          Join(run_id, island_id);
        }
        break;
      case 1:
      case 2:
      case 3:
        if (island != islands_.end()) Island(run, island->second);
        break;
      case 4:
        Operate(run);
        break;
      case 5:
        Read(run);
        break;
      case 6: {
        v1::RegisterServerRequest request;
        request.set_server_id(absl::StrCat("other-", any_.Pick(4)));
        request.set_address("127.0.0.1:1");
        request.set_incarnation(1 + any_.Pick(4));
        core_->RegisterServer(Maybe(request), now_).status().IgnoreError();
        break;
      }
      case 7:
        now_ += absl::Milliseconds(any_.Pick(any_.Pick(9) == 0 ? 9000 : 900));
        core_->Advance(now_);
        break;
      case 8:
        Push(run_id, static_cast<int32_t>(any_.Pick(kIslands)));
        break;
      default:
        Report(static_cast<int>(any_.Pick(kServers)));
    }
    Take();
  }

  static int CountDeleted(const Coordinator& core, int server) {
    return core.ServerPlan(absl::StrCat("server-", server)).deleted_runs_size();
  }

  // Stores the decisions, then sends the plans.
  void Take() {
    Effects effects = core_->TakeEffects(now_);
    if (!effects.batch.empty()) ++batch_count_;
    for (const std::string& run_id : effects.batch.deleted_runs) {
      entries_.erase(run_id);
      snapshots_.erase(run_id);
    }
    for (const HistoryTrim& trim : effects.batch.trims) {
      EXPECT_LE(trim.end, (*core_->FindRun(trim.run_id))->state().commit_seq());
    }
    for (LogEntry& entry : effects.batch.entries) {
      entries_[entry.run_id].push_back(std::move(entry));
    }
    for (LogSnapshot& snapshot : effects.batch.snapshots) {
      snapshots_[snapshot.run_id] = std::move(snapshot);
    }
    EXPECT_GT(core_->NextTimer(), now_);
    for (const char* run_id : kRuns) {
      const RunMachine& run = **core_->FindRun(run_id);
      BuildRun(run, /*with_tensors=*/true);
      BuildRunState(run, *core_);
      for (size_t slot = 0; slot < run.state().members().size(); ++slot) {
        core_->IslandPlan(run, static_cast<int32_t>(slot));
      }
    }
    for (int s = 0; s < kServers; ++s) {
      core_->ServerPlan(absl::StrCat("server-", s));
    }
  }

  // Recovers from the newest snapshots, or from the whole log.
  std::unique_ptr<Coordinator> Recovered(bool from_snapshots) {
    auto recovered = std::make_unique<Coordinator>(options_);
    for (auto& [run_id, entries] : entries_) {
      int64_t revision = 0;
      const auto snapshot = snapshots_.find(run_id);
      if (from_snapshots && snapshot != snapshots_.end()) {
        LogSnapshot read;
        read.run_id = run_id;
        EXPECT_TRUE(read.snapshot.ParseFromString(
            snapshot->second.snapshot.SerializeAsString()));
        EXPECT_TRUE(recovered->Restore(read).ok());
        revision = read.snapshot.revision();
      }
      for (const LogEntry& entry : entries) {
        if (entry.record.revision() <= revision) continue;
        LogEntry read = {run_id, {}};
        EXPECT_TRUE(
            read.record.ParseFromString(entry.record.SerializeAsString()));
        const absl::Status replayed = recovered->Replay(read);
        EXPECT_TRUE(replayed.ok()) << replayed;
      }
    }
    return recovered;
  }

  void Restart() {
    for (const bool from_snapshots : {false, true}) {
      std::unique_ptr<Coordinator> recovered = Recovered(from_snapshots);
      for (const char* run_id : kRuns) {
        const auto run = recovered->FindRun(run_id);
        ASSERT_TRUE(run.ok()) << run.status();
        ASSERT_EQ((*run)->state().DebugString(),
                  (*core_->FindRun(run_id))->state().DebugString())
            << (from_snapshots ? "from snapshots" : "from the log");
      }
      EXPECT_EQ(recovered->coordinator_epoch(), core_->coordinator_epoch());
      // Plans need a life.
      recovered->Start(now_, {"cluster", absl::StrCat("start", ++start_count_)},
                       batch_count_);
      for (int s = 0; s < kServers; ++s) {
        EXPECT_EQ(CountDeleted(*recovered, s), CountDeleted(*core_, s));
      }
      if (from_snapshots) core_ = std::move(recovered);
    }
    for (int s = 0; s < kServers; ++s) Register(s);
    Take();
  }

  const uint64_t seed_;
  Mutator any_;
  CoordinatorOptions options_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  std::unique_ptr<Coordinator> core_;
  std::map<std::string, std::vector<LogEntry>> entries_;  // By run_id.
  std::map<std::string, LogSnapshot> snapshots_;          // By run_id.
  std::map<std::string, std::vector<v1::ContributionInfo>> pushed_;
  std::map<std::pair<std::string, std::string>, IslandCredentials> islands_;
  int64_t report_seq_ = 0;
  int64_t start_count_ = 0;
  int64_t batch_count_ = 0;
  int64_t changed_count_ = 0;
  int64_t created_count_ = 0;
  int64_t deleted_count_ = 0;
};

TEST_F(CoordinatorAnyMessageTest, NoRequestEndsItOrItsReplay) {
  int64_t commit_count = 0;
  for (int trial = 0; trial < 45; ++trial) {
    Begin();
    for (int step = 0; step < 400; ++step) {
      Step();
      if (step % 50 == 49) Restart();
      if (HasFailure()) return;
    }
    for (const char* run_id : kRuns) {
      commit_count += (*core_->FindRun(run_id))->state().commit_seq();
    }
  }
  EXPECT_GT(changed_count_, 500);
  EXPECT_GT(deleted_count_, 0);
  EXPECT_GT(commit_count, 50) << "too few to prove anything";
  std::printf("commits: %lld\n", static_cast<long long>(commit_count));
}

}  // namespace
}  // namespace atl::coordinator
