// Streams of plans of a core that two runs, their islands and their servers
// change in any order. The receivers must have what whole plans say.

#include "coordinator/service/plan_publisher.h"

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "atoll/v1/island_service.pb.h"
#include "base/features/features.h"
#include "base/layout/run_timing.h"
#include "coordinator/client/plan_parts.h"
#include "coordinator/core/outputs/plans.h"
#include "coordinator/core/testing/run_simulation.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

constexpr int kServers = 3;  // A run has two of them.
constexpr int kIslands = 3;

// The fields that change with every plan, or alone are no reason for one.
template <typename Plan>
std::string Content(Plan plan) {
  plan.clear_revision();
  plan.clear_coordinator_epoch();
  plan.clear_log();
  if constexpr (requires { plan.clear_persisted_commit_seq(); }) {
    plan.clear_persisted_commit_seq();
  } else {
    // A report may name more that has ended; the run's next change tells.
    for (auto& run : *plan.mutable_runs()) run.clear_dropped();
  }
  return plan.DebugString();
}

class IslandReceiver : public PlanPublisher::IslandSink {
 public:
  void Offer(EncodedIslandPlan encoded) override {
    EXPECT_FALSE(end.has_value());
    v1::WatchPlanResponse response;
    EXPECT_TRUE(
        response.ParseFromString(encoded.head + *encoded.shared + encoded.own));
    EXPECT_GE(response.plan().revision(), plan.revision());
    plan = response.plan();
    ++count;
  }
  void End(absl::Status status) override { end = std::move(status); }
  bool done() const override { return end.has_value() || is_gone; }

  v1::IslandPlan plan;
  int count = 0;
  std::optional<absl::Status> end;
  bool is_gone = false;
};

// Skips plans while it is slow, as a stream does.
class ServerReceiver : public PlanPublisher::ServerSink {
 public:
  void Offer(v1::ServerPlan offered) override {
    EXPECT_FALSE(end.has_value());
    ++count;
    run_count += offered.runs_size();
    if (offered.runs_size() > 0) newest = offered.runs(0);
    if (next_.has_value()) MergePlans(*std::move(next_), offered);
    next_ = std::move(offered);
    if (!is_slow) Take();
  }
  void End(absl::Status status) override { end = std::move(status); }
  bool done() const override { return end.has_value() || is_gone; }

  // The receiver gets the plans that wait.
  void Take() {
    if (!next_.has_value()) return;
    for (v1::WatchServerPlanResponse& part :
         CutPlan(*std::exchange(next_, std::nullopt), 100)) {
      const auto joined = joiner_.Add(std::move(part));
      ASSERT_TRUE(joined.ok()) << joined.status();
      if (joined->has_value()) plan = **joined;
    }
  }

  v1::ServerPlan plan;  // Whole.
  v1::ServerRunPlan newest;  // As it was given.
  int count = 0;
  int run_count = 0;  // Runs that were not named as unchanged.
  std::optional<absl::Status> end;
  bool is_gone = false;
  bool is_slow = false;

 private:
  std::optional<v1::ServerPlan> next_;
  PlanJoiner joiner_;
};

class PlanPublisherTest : public testing::Test {
 protected:
  PlanPublisherTest() : seed_(std::random_device()()), random_(seed_) {
    // Printed first, because a failure may end the process.
    std::printf("seed: %llu\n", static_cast<unsigned long long>(seed_));
    std::fflush(stdout);
    core_.Start(now_, {"cluster", "start"}, 0);
  }

  int Pick(int count) {
    return std::uniform_int_distribution<int>(0, count - 1)(random_);
  }

  // Stores the decisions of a step, and sends plans.
  void Take() {
    plans_.Note(core_, core_.TakeEffects(now_));
    plans_.Send(core_, now_);
  }
  // The same until nothing is held back any longer.
  void Settle() {
    Take();
    for (int i = 0; i < 100; ++i) {
      now_ += PlanPublisher::kGap;
      core_.Advance(now_);
      Take();
      if (plans_.NextSend() == absl::InfiniteFuture()) return;
    }
    ADD_FAILURE() << "plans are sent without an end";
  }

  RunMachine& Run(const std::string& run_id) {
    return **core_.FindRun(run_id);
  }

  void Create(const std::string& run_id, const v1::RunSpec& spec) {
    v1::CreateRunRequest request;
    request.set_run_id(run_id);
    *request.mutable_spec() = spec;
    const auto created =
        core_.CreateRun(request, now_, absl::StrCat("uid-", ++created_count_));
    ASSERT_TRUE(created.ok()) << created.status();
    pushed_.erase(run_id);
    std::erase_if(islands_, [&](const auto& island) {
      return island.first.first == run_id;
    });
  }
  v1::RunSpec AnySpec() {
    v1::RunSpec (*const kinds[])(int) = {&SimpleSpec, &ElasticSpec, &AsyncSpec};
    v1::RunSpec spec = kinds[Pick(3)](1 + Pick(2));
    spec.mutable_schedule()->set_round_count(1 + Pick(30));
    return spec;
  }

  void Register(int server) {
    v1::RegisterServerRequest request;
    request.set_server_id(absl::StrCat("server-", server));
    request.set_address(absl::StrCat("127.0.0.1:", 1 + Pick(2)));
    request.set_incarnation(++incarnations_[server]);
    request.set_features(ProgramFeatures());
    EXPECT_TRUE(core_.RegisterServer(request, now_).ok());
  }

  // The server has done what its whole plan says; `persists`: on disk too.
  void Report(int server, bool persists = true) {
    v1::ReportShardsRequest request;
    request.set_server_id(absl::StrCat("server-", server));
    request.set_incarnation(incarnations_[server]);
    request.set_report_seq(++report_seq_);
    const v1::ServerPlan plan = core_.ServerPlan(request.server_id());
    request.set_plan_revision(plan.revision());
    for (const v1::ServerRunPlan& run : plan.runs()) {
      v1::ShardReport& report = *request.add_shards();
      report.set_run_id(run.run_id());
      report.set_run_uid(run.run_uid());
      report.set_run_epoch(run.run_epoch());
      report.set_shard(run.shard());
      report.set_initialized(true);
      const RunState& state = Run(run.run_id()).state();
      for (size_t f = 0; f < state.fragments().size(); ++f) {
        report.add_version0_digests();
      }
      int64_t& persisted = persisted_[{server, run.run_uid()}];
      if (persists) persisted = run.commit_seq();
      report.set_persisted_commit_seq(persisted);
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
    }
    const auto answer = core_.ReportShards(request, now_);
    if (!answer.ok()) return;
    // Otherwise the islands' transfers would be cut although nothing is late.
    for (const auto& [receiver, number] : servers_) {
      if (number != server || receiver->done() || receiver->is_slow) continue;
      if (plans_.NextSend() == absl::InfiniteFuture()) {
        EXPECT_LE(answer->plan_revision(), receiver->plan.revision());
      }
    }
  }

  void Push(const std::string& run_id, int32_t slot) {
    if (slot >= static_cast<int32_t>(Run(run_id).state().members().size())) {
      return;
    }
    const v1::IslandPlan told = core_.IslandPlan(Run(run_id), slot);
    std::vector<v1::ContributionInfo>& pushed = pushed_[run_id];
    for (const v1::OpenRound& open : told.open_rounds()) {
      for (const v1::SlotPlan& plan : open.slots()) {
        v1::ContributionInfo& info = pushed.emplace_back();
        info.mutable_key()->set_run_epoch(told.run_epoch());
        info.mutable_key()->set_fragment(open.fragment());
        info.mutable_key()->set_slot(slot);
        info.mutable_key()->set_seq(1 + open.version());
        info.set_anchor_version(open.version());
        info.set_codec(v1::CODEC_F32);
        info.set_step_count(plan.step_count());
        info.set_token_count(80);
        info.set_data_shard(plan.data_shard());
        info.set_data_end(plan.data_position() + 8);
      }
    }
    while (pushed.size() > 12) pushed.erase(pushed.begin());
  }

  void Join(const std::string& run_id, const std::string& island_id) {
    v1::JoinRequest request;
    request.set_run_id(run_id);
    request.set_island_id(island_id);
    request.mutable_capabilities()->add_devices()->set_kind("cpu");
    request.mutable_capabilities()->set_data_fingerprint(
        Run(run_id).state().spec().data().fingerprint());
    const std::string secret(32, 's');
    const auto answer =
        Run(run_id).Step(event::Join{request, secret}, now_);
    if (!answer.ok()) return;
    islands_[{run_id, island_id}] = {
        island_id, answer->joined.island_epoch(), secret};
  }

  std::shared_ptr<IslandReceiver> Watch(const std::string& run_id,
                                        const std::string& island_id) {
    auto receiver = std::make_shared<IslandReceiver>();
    plans_.AddIsland(core_, run_id, islands_[{run_id, island_id}], receiver);
    watchers_[receiver] = {run_id, island_id};
    return receiver;
  }
  std::shared_ptr<ServerReceiver> WatchAsServer(
      int server, uint64_t features = ProgramFeatures()) {
    auto receiver = std::make_shared<ServerReceiver>();
    plans_.AddServer(core_, absl::StrCat("server-", server),
                     incarnations_[server], "", features, receiver, now_);
    servers_[receiver] = server;
    return receiver;
  }

  // Starts the run of two servers, with two islands that are ready.
  void StartRun(const std::string& run_id) {
    for (int i = 0; i < 2; ++i) Join(run_id, absl::StrCat("i", i));
    for (int i = 0; i < 3; ++i) {
      Report(0);
      Report(1);
      Take();
    }
    for (int i = 0; i < 2; ++i) Ready(run_id, absl::StrCat("i", i));
    Take();
  }
  void Ready(const std::string& run_id, const std::string& island_id) {
    Run(run_id)
        .Step(event::Ready{islands_[{run_id, island_id}],
                           Run(run_id).state().commit_seq()},
              now_)
        .status()
        .IgnoreError();
  }

  void StepIsland(const std::string& run_id, const std::string& island_id) {
    RunMachine& run = Run(run_id);
    const IslandCredentials& island = islands_[{run_id, island_id}];
    v1::ReportProgressRequest progress;
    progress.set_loss(1);
    progress.set_loss_step_count(1);
    if (Pick(2) == 0) {
      const auto digit = static_cast<char>('a' + Pick(2));
      progress.set_index_digest(std::string(64, digit));
    }
    switch (Pick(8)) {
      case 0:
        run.Step(event::Progress{island, progress}, now_)
            .status()
            .IgnoreError();
        return;
      case 1:
        if (Pick(8) != 0) return;
        run.Step(event::Leave{island}, now_).status().IgnoreError();
        return;
      case 2:
        run.Step(event::Heartbeat{island}, now_).status().IgnoreError();
        return;
      default:
        run.Step(event::Heartbeat{island}, now_).status().IgnoreError();
        Ready(run_id, island_id);
    }
  }

  void Revoke(const std::string& run_id, const std::string& island_id) {
    v1::RevokeIslandRequest revoke;
    revoke.set_run_id(run_id);
    revoke.set_island_id(island_id);
    core_.RevokeIsland(revoke, {{"operator", ""}, {}, now_, now_})
        .status()
        .IgnoreError();
  }

  void Operate(const std::string& run_id) {
    if (Pick(100) == 0) {
      return Revoke(run_id, absl::StrCat("i", Pick(kIslands)));
    }
    RunMachine& run = Run(run_id);
    v1::ExportCheckpointRequest pin;
    pin.set_pin_id(absl::StrCat("pin-", Pick(3)));
    pin.mutable_lease_duration()->set_seconds(1 + Pick(30));
    pin.set_release(Pick(2) == 0);
    switch (Pick(7)) {
      case 0:
        run.Step(event::Pause{}, now_).status().IgnoreError();
        return;
      case 1:
        run.Step(event::RemoveIsland{absl::StrCat("i", Pick(kIslands)),
                                     /*readmit=*/Pick(3) != 0},
                 now_)
            .status()
            .IgnoreError();
        return;
      case 2:
        run.Step(event::Export{pin}, now_).status().IgnoreError();
        return;
      case 3:
        if (Pick(8) != 0) return;
        run.Step(event::Cancel{}, now_).status().IgnoreError();
        if (Pick(2) == 0 && core_.DeleteRun(run_id, "", now_).ok()) {
          Create(run_id, AnySpec());
        }
        return;
      default:
        run.Step(event::Resume{}, now_).status().IgnoreError();
    }
  }

  void StepAny() {
    const std::string run_id = Pick(2) == 0 ? "one" : "two";
    const std::string island_id = absl::StrCat("i", Pick(kIslands));
    const bool has_joined = islands_.contains({run_id, island_id});
    switch (Pick(12)) {
      case 0:
        if (!has_joined || Pick(10) == 0) Join(run_id, island_id);
        break;
      case 1:
      case 2:
        if (has_joined) StepIsland(run_id, island_id);
        break;
      case 3:
        Operate(run_id);
        break;
      case 4:
        now_ += absl::Milliseconds(Pick(Pick(9) == 0 ? 9000 : 50));
        core_.Advance(now_);
        break;
      case 5:
        if (has_joined) Watch(run_id, island_id);
        break;
      case 6:
        WatchAsServer(Pick(kServers),
                      Pick(4) == 0   ? 0
                      : Pick(4) == 0 ? ProgramFeatures() & ~kPlansOfChangedParts
                                     : ProgramFeatures());
        break;
      case 7:
        if (Pick(10) == 0) Register(Pick(kServers));
        for (auto& [receiver, number] : servers_) {
          receiver->is_slow = Pick(3) == 0;
          if (!receiver->is_slow) receiver->Take();
        }
        break;
      case 8:
        Push(run_id, Pick(kIslands));
        break;
      default:
        Report(Pick(kServers), /*persists=*/Pick(3) != 0);
    }
  }

  // The plan without rounds that were sealed since, if the SEAL does not concern
  // the island.
  v1::IslandPlan WithoutSealed(v1::IslandPlan plan) {
    const RunState& state = Run(plan.run_id()).state();
    google::protobuf::RepeatedPtrField<v1::OpenRound> rounds;
    for (const v1::OpenRound& round : plan.open_rounds()) {
      if (IsAsync(state.spec().schedule()) ||
          state.fragments()[round.fragment()].phase != RoundPhase::kSealed ||
          !IsSealOfOthers(state, round.fragment(), plan.slot())) {
        *rounds.Add() = round;
      }
    }
    plan.mutable_open_rounds()->Swap(&rounds);
    return plan;
  }

  // Every open stream has given its receiver the whole plan.
  void Check() {
    Settle();
    std::erase_if(watchers_, [](const auto& watcher) {
      return watcher.first->done();
    });
    std::erase_if(servers_, [](const auto& server) {
      return server.first->done();
    });
    for (const auto& [receiver, who] : watchers_) {
      const auto& [run_id, island_id] = who;
      ASSERT_TRUE(Run(run_id).CheckIsland(islands_[who]).ok());
      const int32_t slot =
          Run(run_id).state().FindMember(island_id)->record.slot();
      ASSERT_EQ(Content(WithoutSealed(receiver->plan)),
                Content(core_.IslandPlan(Run(run_id), slot)));
      ++checked_count_;
    }
    for (const auto& [receiver, server] : servers_) {
      receiver->Take();
      ASSERT_EQ(
          Content(receiver->plan),
          Content(core_.ServerPlan(absl::StrCat("server-", server))));
      ++checked_count_;
    }
  }

  const uint64_t seed_;
  std::mt19937_64 random_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  Coordinator core_{CoordinatorOptions()};
  PlanPublisher plans_{{.slice = 1}};
  std::map<int, int64_t> incarnations_;
  std::map<std::pair<int, std::string>, int64_t> persisted_;
  std::map<std::string, std::vector<v1::ContributionInfo>> pushed_;
  std::map<std::pair<std::string, std::string>, IslandCredentials> islands_;
  std::map<std::shared_ptr<IslandReceiver>, std::pair<std::string, std::string>>
      watchers_;
  std::map<std::shared_ptr<ServerReceiver>, int> servers_;
  int64_t report_seq_ = 0;
  int64_t created_count_ = 0;
  int64_t checked_count_ = 0;
};

TEST_F(PlanPublisherTest, AReceiverHasTheWholePlanAfterAnySteps) {
  for (int s = 0; s < kServers; ++s) Register(s);
  for (const char* run_id : {"one", "two"}) Create(run_id, AnySpec());
  int64_t commit_count = 0;
  for (int step = 0; step < 6000; ++step) {
    StepAny();
    Take();
    if (Pick(4) == 0) Check();
    if (HasFailure()) return;
    if (Pick(300) == 0) {
      // As after a failed append: all get a plan.
      plans_.NoteAll(core_);
      Check();
    }
    for (const char* run_id : {"one", "two"}) {
      if (!Run(run_id).state().ended()) continue;
      commit_count += Run(run_id).state().commit_seq();
      if (Pick(30) == 0 && core_.DeleteRun(run_id, "", now_).ok()) {
        Create(run_id, AnySpec());
      }
    }
  }
  EXPECT_GT(checked_count_, 1000) << "too few to prove anything";
  EXPECT_GT(commit_count, 0);
}

TEST_F(PlanPublisherTest, AnIslandGetsAPlanOnlyForWhatConcernsIt) {
  for (int s = 0; s < 2; ++s) Register(s);
  Create("one", SimpleSpec());
  StartRun("one");
  const auto watcher = Watch("one", "i0");
  EXPECT_EQ(watcher->count, 1);
  EXPECT_EQ(watcher->plan.open_rounds_size(), 1);
  Settle();
  const auto count_of = [&](const auto& step) {
    now_ += absl::Seconds(1);
    const int before = watcher->count;
    step();
    Settle();
    return watcher->count - before;
  };
  EXPECT_EQ(count_of([&] {
              v1::ReportProgressRequest progress;
              progress.set_loss(1);
              progress.set_loss_step_count(1);
              const IslandCredentials& island = islands_[{"one", "i1"}];
              RunMachine& run = Run("one");
              const event::Progress told = {island, progress};
              EXPECT_TRUE(run.Step(told, now_).ok());
              EXPECT_TRUE(run.Step(event::Heartbeat{island}, now_).ok());
            }),
            0);
  EXPECT_EQ(count_of([&] { Join("one", "another"); }), 0);
  EXPECT_EQ(count_of([&] { Report(0); }), 0);
  // The round is sealed, which it need not know, and committed.
  EXPECT_EQ(count_of([&] {
              for (int slot = 0; slot < 2; ++slot) Push("one", slot);
              for (int i = 0; i < 4; ++i) {
                for (int s = 0; s < 2; ++s) Report(s, /*persists=*/false);
                Take();
              }
            }),
            1);
  ASSERT_EQ(watcher->plan.commit_seq(), 1);
  EXPECT_EQ(watcher->plan.persisted_commit_seq(), 0);
  // A shard's disk is none of its business.
  EXPECT_EQ(count_of([&] {
              for (int s = 0; s < 2; ++s) Report(s, /*persists=*/true);
            }),
            0);
  EXPECT_EQ(count_of([&] { Register(1); }), 1);
}

TEST_F(PlanPublisherTest, ASealGoesToTheIslandsThatItLeavesOut) {
  for (int s = 0; s < 2; ++s) Register(s);
  v1::RunSpec spec = ElasticSpec();
  spec.mutable_schedule()->set_min_quorum(1);
  Create("one", spec);
  StartRun("one");
  const auto sealed = Watch("one", "i0");
  const auto left_out = Watch("one", "i1");
  Settle();
  Push("one", 0);
  for (int s = 0; s < 2; ++s) Report(s);
  Settle();
  const int counts[] = {sealed->count, left_out->count};
  for (int i = 0; i < 1000; ++i) {
    if (Run("one").state().fragments()[0].phase == RoundPhase::kSealed) break;
    now_ += absl::Seconds(1);
    for (const char* island_id : {"i0", "i1"}) {
      const IslandCredentials& island = islands_[{"one", island_id}];
      EXPECT_TRUE(Run("one").Step(event::Heartbeat{island}, now_).ok());
    }
    for (int s = 0; s < 2; ++s) Report(s);
    Settle();
  }
  ASSERT_EQ(Run("one").state().fragments()[0].phase, RoundPhase::kSealed);
  EXPECT_EQ(sealed->count, counts[0]);
  EXPECT_EQ(sealed->plan.open_rounds_size(), 1);
  EXPECT_EQ(left_out->count, counts[1] + 1);
  EXPECT_EQ(left_out->plan.open_rounds_size(), 0);
  // A first plan is as the round is.
  EXPECT_EQ(Watch("one", "i0")->plan.open_rounds_size(), 0);
}

TEST_F(PlanPublisherTest, AServerGetsOnlyItsOwnRunsAndOnlyWhatHasChanged) {
  for (int s = 0; s < 2; ++s) Register(s);
  Create("one", SimpleSpec());
  Create("two", SimpleSpec());
  Take();
  const auto newer = WatchAsServer(0);
  const auto older = WatchAsServer(0, /*features=*/0);
  Register(2);  // It has no shard.
  Take();
  const auto spare = WatchAsServer(2);
  EXPECT_EQ(newer->plan.runs_size(), 2);
  Settle();
  now_ += absl::Seconds(1);
  const int counts[] = {newer->count, older->count, spare->count};
  const int run_counts[] = {newer->run_count, older->run_count};
  Join("one", "i0");
  Settle();
  EXPECT_EQ(newer->count, counts[0] + 1);
  EXPECT_EQ(older->count, counts[1] + 1);
  EXPECT_EQ(spare->count, counts[2]);
  EXPECT_EQ(newer->run_count, run_counts[0] + 1);
  EXPECT_EQ(older->run_count, run_counts[1] + 2);
  for (const auto& receiver : {newer, older}) {
    ASSERT_EQ(receiver->plan.runs_size(), 2);
    EXPECT_EQ(receiver->plan.runs(0).members_size(), 1);
    EXPECT_EQ(receiver->plan.runs(1).members_size(), 0);
  }
}

TEST_F(PlanPublisherTest, WhatConcernsOneRunGoesToItsServersAlone) {
  for (int s = 0; s < 2; ++s) Register(s);
  Create("one", SimpleSpec());
  Take();
  Register(2);
  Create("two", SimpleSpec());
  StartRun("one");
  Settle();
  const auto of_both = WatchAsServer(0);
  const auto of_one = WatchAsServer(1);
  const auto of_two = WatchAsServer(2);
  ASSERT_EQ(of_both->plan.runs_size(), 2);
  ASSERT_EQ(of_two->plan.runs_size(), 1);
  ASSERT_EQ(of_two->plan.runs(0).run_id(), "two");
  Settle();
  const int count = of_two->count;
  const int run_count = of_both->run_count;
  now_ += absl::Seconds(1);
  Revoke("one", "i0");
  Settle();
  for (const auto& receiver : {of_both, of_one}) {
    ASSERT_EQ(receiver->plan.runs(0).revoked_island_ids_size(), 1);
    EXPECT_EQ(receiver->plan.runs(0).revoked_island_ids(0), "i0");
  }
  EXPECT_EQ(of_both->run_count, run_count + 1);
  EXPECT_EQ(of_two->count, count);
  now_ += absl::Seconds(1);
  Register(1);
  Settle();
  ASSERT_TRUE(of_one->end.has_value());
  EXPECT_EQ(of_two->count, count);
  now_ += absl::Seconds(1);
  ASSERT_TRUE(Run("one").Step(event::Cancel{}, now_).ok());
  Take();
  ASSERT_TRUE(core_.DeleteRun("one", "", now_).ok());
  Settle();
  EXPECT_EQ(of_both->plan.deleted_runs_size(), 1);
  EXPECT_EQ(of_two->count, count);
}

TEST_F(PlanPublisherTest, AServersPlanSaysOnlyWhichPartsHaveChanged) {
  for (int s = 0; s < 2; ++s) Register(s);
  Create("one", SimpleSpec(2));
  StartRun("one");
  const auto receiver = WatchAsServer(0);
  const auto change_after = [&](const auto& step) {
    Settle();
    now_ += absl::Seconds(1);
    step();
    Take();
    EXPECT_TRUE(receiver->newest.is_change());
    EXPECT_EQ(Content(receiver->plan), Content(core_.ServerPlan("server-0")));
    return receiver->newest;
  };
  const auto push = [&](int fragment) {
    Push("one", 0);
    Push("one", 1);
    std::erase_if(pushed_["one"], [&](const v1::ContributionInfo& info) {
      return info.key().fragment() != fragment;
    });
    for (int s = 0; s < 2; ++s) Report(s, /*persists=*/false);
  };
  EXPECT_FALSE(receiver->newest.is_change());
  v1::ServerRunPlan change = change_after([&] { push(0); });
  ASSERT_EQ(change.seals_size(), 1);
  EXPECT_EQ(change.seals(0).contributions_size(), 2);
  EXPECT_EQ(change.members_size(), 0);
  change = change_after([&] { push(1); });
  ASSERT_EQ(change.seals_size(), 2);
  EXPECT_EQ(change.seals(0).contributions_size(), 0) << "as before";
  EXPECT_EQ(change.seals(1).contributions_size(), 2);
  // Both shards have merged: both commits, and no seal anew.
  change = change_after([&] {
    for (int s = 0; s < 2; ++s) Report(s, /*persists=*/false);
  });
  ASSERT_EQ(change.commits_size(), 2);
  EXPECT_EQ(change.commits(1).outcomes_size(), 2);
  EXPECT_EQ(change.seals(0).contributions_size(), 0);
  change = change_after([&] { Join("one", "i2"); });
  ASSERT_EQ(change.members_size(), 1);
  EXPECT_EQ(change.members(0).slot(), 2);
  EXPECT_EQ(change.commits(0).outcomes_size(), 0) << "as before";
  change = change_after([&] {
    EXPECT_TRUE(Run("one")
                    .Step(event::Leave{islands_[{"one", "i2"}]}, now_)
                    .ok());
  });
  EXPECT_EQ(change.members_size(), 0);
  ASSERT_EQ(change.gone_slots_size(), 1);
  EXPECT_EQ(change.gone_slots(0), 2);
  EXPECT_EQ(receiver->plan.runs(0).members_size(), 2);
}

TEST_F(PlanPublisherTest, ChangesWithinTheGapGoOutTogether) {
  for (int s = 0; s < 2; ++s) Register(s);
  Create("one", ElasticSpec());
  StartRun("one");
  const auto watcher = Watch("one", "i0");
  Settle();
  now_ += absl::Seconds(1);
  const int before = watcher->count;
  for (int i = 0; i < 5; ++i) {
    Register(0);
    Take();
    EXPECT_EQ(watcher->count, before + 1) << "the first at once";
    now_ += absl::Milliseconds(3);
  }
  EXPECT_EQ(plans_.NextSend(), now_ + absl::Milliseconds(5));
  now_ = plans_.NextSend();
  Take();
  EXPECT_EQ(watcher->count, before + 2);
  EXPECT_EQ(Content(watcher->plan), Content(core_.IslandPlan(Run("one"), 0)));
  // The end does not wait.
  Run("one").Step(event::Cancel{}, now_).status().IgnoreError();
  Take();
  EXPECT_EQ(watcher->count, before + 3);
  ASSERT_TRUE(watcher->end.has_value());
  EXPECT_TRUE(watcher->end->ok());
}

TEST_F(PlanPublisherTest, AStreamOfAnIslandThatIsNoMemberEndsAtOnce) {
  for (int s = 0; s < 2; ++s) Register(s);
  Create("one", ElasticSpec());
  StartRun("one");
  const auto watcher = Watch("one", "i0");
  Settle();
  now_ += absl::Seconds(1);
  Register(0);
  Take();  // Begins a gap.
  Run("one")
      .Step(event::Leave{islands_[{"one", "i0"}]}, now_)
      .status()
      .IgnoreError();
  Take();
  ASSERT_TRUE(watcher->end.has_value());
  EXPECT_EQ(watcher->end->code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace atl::coordinator
