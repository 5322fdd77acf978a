// Many islands, each with its own connections: a coordinator, two servers and
// all islands in one process.
//
// There are few places, one island is killed and restarted, and all wait for a
// slow one. The bits are the same at both levels.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "atoll/v1/training_state_service.grpc.pb.h"
#include "base/io/testing/fake_file_system.h"
#include "base/metrics/metrics.h"
#include "base/rpc/channel.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"
#include "coordinator/client/client.h"
#include "coordinator/client/server_control_client.h"
#include "coordinator/service/event_loop.h"
#include "coordinator/service/listeners.h"
#include "coordinator/store/testing/memory_store.h"
#include "gtest/gtest.h"
#include "server/parameter_server.h"
#include "worker/api/run_island.h"
#include "worker/island/testing/tiny_run.h"

namespace atl {
namespace {

constexpr int kIslands = 70;
constexpr int kServers = 2;
constexpr int kFragments = 4;
constexpr int kStraggler = 3;
constexpr int kVictim = 66;
constexpr char kRun[] = "many";
// Enough for a busy machine; a passing test never waits this long.
constexpr absl::Duration kPatience = absl::Minutes(2);

class MeasuredControl : public coordinator::ServerControlClient {
 public:
  explicit MeasuredControl(std::unique_ptr<ServerControlClient> control)
      : control_(std::move(control)) {}

  absl::StatusOr<v1::RegisterServerResponse> RegisterServer(
      const v1::RegisterServerRequest& request) override {
    return control_->RegisterServer(request);
  }
  absl::StatusOr<v1::ServerPlan> WaitForPlan(
      const coordinator::PlanPosition& after, absl::Duration timeout,
      std::stop_token stop) override {
    absl::StatusOr<v1::ServerPlan> plan =
        control_->WaitForPlan(after, timeout, stop);
    if (plan.ok()) {
      plan_bytes_max_ = std::max<size_t>(plan_bytes_max_, plan->ByteSizeLong());
    }
    return plan;
  }
  absl::StatusOr<v1::ReportShardsResponse> ReportShards(
      v1::ReportShardsRequest report) override {
    report_bytes_max_ =
        std::max<size_t>(report_bytes_max_, report.ByteSizeLong());
    return control_->ReportShards(std::move(report));
  }

  size_t plan_bytes_max() const { return plan_bytes_max_; }
  size_t report_bytes_max() const { return report_bytes_max_; }

 private:
  const std::unique_ptr<ServerControlClient> control_;
  std::atomic<size_t> plan_bytes_max_ = 0;    // Of one thread.
  std::atomic<size_t> report_bytes_max_ = 0;  // The same.
};

struct Server {
  FakeFileSystem fs;
  std::unique_ptr<coordinator::Client> runs;
  std::unique_ptr<MeasuredControl> control;
  Metrics metrics;
  std::unique_ptr<server::ParameterServer> server;
};

// The islands' progress, for islands that wait for it.
class Gate {
 public:
  void Note(int island, bool waits) {
    MutexLock lock(&mutex_);
    waits_[island] = waits;
    changed_.SignalAll();
  }
  void Joined(int island) {
    MutexLock lock(&mutex_);
    joined_count_ = std::max(joined_count_, island + 1);
    changed_.SignalAll();
  }
  bool WaitForJoin(int island) {
    MutexLock lock(&mutex_);
    return changed_.AwaitWithTimeout(&mutex_, kPatience, [&] {
      mutex_.AssertHeld();
      return joined_count_ > island;
    });
  }
  // All but `island` wait.
  bool WaitForOthers(int island) {
    MutexLock lock(&mutex_);
    return changed_.AwaitWithTimeout(&mutex_, kPatience, [&] {
      mutex_.AssertHeld();
      for (int i = 0; i < kIslands; ++i) {
        if (i != island && !waits_[i]) return false;
      }
      return true;
    });
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool waits_[kIslands] ABSL_GUARDED_BY(mutex_) = {};
  int joined_count_ ABSL_GUARDED_BY(mutex_) = 0;
};

class World {
 public:
  // `live_merge_bytes_max`: a server's memory budget for unmerged chunks.
  explicit World(v1::Durability durability,
                 int64_t live_merge_bytes_max = int64_t{1} << 30)
      : spec_(Spec(durability)), live_merge_bytes_max_(live_merge_bytes_max) {}

  ~World() {
    for (const auto& one : servers_) {
      if (one->server != nullptr) one->server->Stop();
    }
    if (listeners_ != nullptr) listeners_->SetServing(false);
    if (loop_ != nullptr) loop_->Stop();
    if (listeners_ != nullptr) listeners_->Stop();
  }

  std::string Run() {
    const absl::Status begun = Begin();
    EXPECT_TRUE(begun.ok()) << begun;
    if (!begun.ok()) return "";
    std::vector<std::thread> threads;
    for (int i = 0; i < kIslands; ++i) {
      threads.emplace_back([this, i] { RunLives(i); });
      // Slots are given by the order of joins.
      EXPECT_TRUE(gate_.WaitForJoin(i)) << "island " << i;
    }
    for (std::thread& thread : threads) thread.join();
    v1::GetRunStateRequest request;
    request.set_run_id(kRun);
    const absl::StatusOr<v1::GetRunStateResponse> state =
        runs_->Call(&v1::TrainingStateService::Stub::GetRunState, request);
    EXPECT_TRUE(state.ok()) << state.status();
    if (!state.ok()) return "";
    EXPECT_EQ(state->run().state(), v1::RUN_STATE_COMPLETED);
    std::string digests;
    for (const v1::FragmentVersion& version : state->cut()) {
      EXPECT_EQ(version.version(), 2);
      absl::StrAppend(&digests, version.digest().ShortDebugString(), "\n");
    }
    for (const auto& one : servers_) {
      EXPECT_EQ(one->server->receive_budget().bytes(), 0);
      std::cout << "largest plan " << one->control->plan_bytes_max()
                << ", report " << one->control->report_bytes_max() << "\n";
    }
    return digests;
  }

 private:
  // Two rounds of each fragment: staggered, answers applied two steps later.
  static v1::RunSpec Spec(v1::Durability durability) {
    worker::TinyRunOptions tiny;
    tiny.island_count = kIslands;
    tiny.inner_step_count = 4;
    tiny.round_count = 2;
    tiny.layer_count = kFragments;
    tiny.fragment_count = kFragments;
    tiny.data_path = worker::WriteTinyText(testing::TempDir(), 7, 400000);
    v1::RunSpec spec = worker::TinyRun(tiny);
    spec.set_server_count(kServers);
    spec.set_durability(durability);
    spec.mutable_inner()->set_batch_size(1);
    spec.mutable_evaluation()->set_every_round_count(0);
    v1::ScheduleSpec& schedule = *spec.mutable_schedule();
    schedule.set_fragment_schedule(v1::FRAGMENT_SCHEDULE_STAGGERED);
    schedule.set_overlap_step_count(2);
    schedule.set_blend(0.5);
    return spec;
  }

  const std::string& address() const {
    return listeners_->ports().front().address;
  }

  absl::Status Begin() {
    coordinator::EventLoop::Spec loop;
    loop.store = &store_;
    loop.clock = &SystemClock();
    ASSIGN_OR_RETURN(loop_, coordinator::EventLoop::Start(loop));
    ASSIGN_OR_RETURN(listeners_, coordinator::Listeners::Start(*loop_, {}));
    listeners_->SetServing(true);
    coordinator::ClientOptions runs;
    runs.address = address();
    runs.channel = rpc::MakeChannelOptions(rpc::ChannelKind::kControl, {});
    ASSIGN_OR_RETURN(runs_, coordinator::MakeClient(runs));
    for (int i = 0; i < kServers; ++i) RETURN_IF_ERROR(StartServer(i));
    v1::CreateRunRequest request;
    request.set_run_id(kRun);
    *request.mutable_spec() = spec_;
    return runs_->Call(&v1::RunService::Stub::CreateRun, request).status();
  }

  absl::Status StartServer(int index) {
    Server& one = *servers_.emplace_back(std::make_unique<Server>());
    ASSIGN_OR_RETURN(auto client,
                     coordinator::MakeServerControlClient(address(), {}));
    one.control = std::make_unique<MeasuredControl>(std::move(client));
    server::ParameterServer::Options options;
    options.server_id = absl::StrCat("server-", index);
    options.data_dir = "data";
    options.stream_limits.stream_count_max = 16;
    options.live_merge_bytes_max = live_merge_bytes_max_;
    const auto get_run =
        [this](const std::string& run_id) -> absl::StatusOr<v1::Run> {
      v1::GetRunRequest request;
      request.set_run_id(run_id);
      ASSIGN_OR_RETURN(const v1::GetRunResponse response,
                       runs_->Call(&v1::RunService::Stub::GetRun, request));
      return response.run();
    };
    ASSIGN_OR_RETURN(one.server, server::ParameterServer::Start(
                                     options, {one.fs, *one.control, get_run,
                                               one.metrics}));
    return absl::OkStatus();
  }

  void RunLives(int island) {
    FakeFileSystem files;
    absl::Status ended = RunIsland(island, /*life=*/0, files);
    if (island == kVictim) {
      EXPECT_TRUE(absl::IsCancelled(ended)) << ended;
      files.Crash();
      ended = RunIsland(island, /*life=*/1, files);
    }
    EXPECT_TRUE(ended.ok()) << island << ": " << ended;
  }

  // One life of an island. The victim's first ends between two contributions.
  absl::Status RunIsland(int island, int life, FakeFileSystem& files) {
    std::stop_source kill;
    worker::RunIslandOptions options;
    options.coordinator_address = address();
    options.run_id = kRun;
    options.island_id = absl::StrCat("island-", island);
    options.work_directory = "/work";
    options.join_patience = kPatience;
    options.patience = kPatience;
    options.stop_at_once = kill.get_token();
    bool has_waited = island != kStraggler;
    bool has_contributed = life > 0;
    options.on_progress = [&](const worker::IslandProgress& progress) {
      if (progress.slot == island) gate_.Joined(island);
      gate_.Note(island, has_contributed && progress.activity == "wait");
      if (progress.activity != "contribute") return;
      if (!has_waited) {
        EXPECT_TRUE(gate_.WaitForOthers(island));
        has_waited = true;
      }
      if (island == kVictim && life == 0 && has_contributed) {
        kill.request_stop();
      }
      has_contributed = true;
    };
    return worker::RunIsland(
               options,
               [&](worker::IslandLinks& links) { links.file_system = &files; })
        .status();
  }

  const v1::RunSpec spec_;
  const int64_t live_merge_bytes_max_;
  Gate gate_;
  coordinator::MemoryLogStore store_;
  std::unique_ptr<coordinator::EventLoop> loop_;
  std::unique_ptr<coordinator::Listeners> listeners_;
  std::unique_ptr<coordinator::Client> runs_;
  std::vector<std::unique_ptr<Server>> servers_;
};

TEST(ManyIslandsTest, GiveTheSameBitsAtBothLevels) {
  const std::string expected = World(v1::DURABILITY_PROCESS).Run();
  EXPECT_NE(expected, "");
  EXPECT_EQ(World(v1::DURABILITY_ISLAND).Run(), expected);
  // A thirteenth of the bytes they push at a time, so the islands take turns.
  const absl::Time begin = SystemClock().Now();
  EXPECT_EQ(World(v1::DURABILITY_ISLAND, 256 << 10).Run(), expected);
  std::cout << "in little room: " << SystemClock().Now() - begin << "\n";
}

}  // namespace
}  // namespace atl
