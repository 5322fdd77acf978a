// The loop without gRPC, on a clock that the test sets.

#include "coordinator/service/event_loop.h"

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random_id/random_id.h"
#include "base/time/testing/fake_clock.h"
#include "coordinator/core/testing/run_simulation.h"
#include "coordinator/store/testing/memory_store.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

class CountingSink : public PlanSink<v1::IslandPlan> {
 public:
  void Offer(v1::IslandPlan) override { ++offered_count; }
  void End(absl::Status status) override {
    end = status.code();
    has_ended = true;
  }
  bool done() const override { return has_ended; }

  std::atomic<int> offered_count{0};
  std::atomic<absl::StatusCode> end{absl::StatusCode::kOk};
  std::atomic<bool> has_ended{false};
};

class EventLoopTest : public testing::Test {
 protected:
  EventLoopTest() {
    spec_.store = &store_;
    spec_.clock = &clock_;
    Start();
    Do([](Coordinator& coordinator, absl::Time now) {
      v1::CreateRunRequest request;
      request.set_run_id("run");
      *request.mutable_spec() = SimpleSpec();
      EXPECT_TRUE(coordinator.CreateRun(request, now).ok());
    });
  }

  void Start() {
    loop_.reset();
    loop_ = *EventLoop::Start(spec_);
  }

  // Runs `what` on the loop, with everything that follows from it.
  void Do(std::function<void(Coordinator&, absl::Time)> what) {
    std::promise<void> answered;
    loop_->Post<bool>(
        [&](Coordinator& coordinator,
            absl::Time now) -> absl::StatusOr<bool> {
          what(coordinator, now);
          return true;
        },
        [&](absl::StatusOr<bool>) { answered.set_value(); });
    answered.get_future().wait();
  }

  IslandCredentials Join(const std::string& island_id) {
    IslandCredentials credentials = {island_id, 0, "secret"};
    Do([&](Coordinator& coordinator, absl::Time now) {
      v1::JoinRequest request;
      request.set_run_id("run");
      request.set_island_id(island_id);
      request.mutable_capabilities()->add_devices()->set_kind("cpu");
      request.mutable_capabilities()->set_data_fingerprint(
          SimpleSpec().data().fingerprint());
      const auto answer = (*coordinator.FindRun("run"))
                              ->Step(event::Join{request, "secret"}, now);
      ASSERT_TRUE(answer.ok()) << answer.status();
      credentials.island_epoch = answer->joined.island_epoch();
    });
    return credentials;
  }

  bool IsPresent(const std::string& island_id) {
    Do([](Coordinator&, absl::Time) {});  // Lets due timers fire.
    bool present = false;
    Do([&](Coordinator& coordinator, absl::Time) {
      present = (*coordinator.FindRun("run"))
                    ->state()
                    .FindMember(island_id)
                    ->present();
    });
    return present;
  }

  std::shared_ptr<CountingSink> Watch(const IslandCredentials& island) {
    auto sink = std::make_shared<CountingSink>();
    loop_->WatchIsland("run", island, sink);
    Do([](Coordinator&, absl::Time) {});
    return sink;
  }

  MemoryLogStore store_;
  FakeClock clock_;
  EventLoop::Spec spec_;
  std::unique_ptr<EventLoop> loop_;
};

// Otherwise leases, grace windows and deadlines would last longer by that time.
TEST_F(EventLoopTest, LeasesEndAfterAStartWithAClockThatWasSetBack) {
  Join("island");
  clock_.Set(clock_.Now() - absl::Hours(1000));
  Start();
  EXPECT_TRUE(IsPresent("island"));
  clock_.Advance(IslandLeaseDuration(SimpleSpec()) + absl::Seconds(1));
  EXPECT_FALSE(IsPresent("island"));
}

TEST_F(EventLoopTest, OneIslandCannotTakeTheStreamsOfOthers) {
  spec_.streams_max = 8;
  Start();
  const IslandCredentials greedy = Join("greedy");
  const IslandCredentials other = Join("other");
  std::vector<std::shared_ptr<CountingSink>> sinks;
  for (int i = 0; i < 20; ++i) sinks.push_back(Watch(greedy));
  const auto sink = Watch(other);
  EXPECT_FALSE(sink->has_ended);
  EXPECT_GT(sink->offered_count, 0);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(sinks[i]->has_ended, i < 16) << i;
    EXPECT_GT(sinks[i]->offered_count, 0);
  }
  EXPECT_EQ(sinks[0]->end, absl::StatusCode::kUnavailable);
}

TEST_F(EventLoopTest, ThePositionInAPlanIsTheStoresNumberOfBatches) {
  const auto position = [&] {
    v1::LogPosition found;
    Do([&](Coordinator& coordinator, absl::Time) {
      found = coordinator.ServerPlan("server-0").log();
    });
    return found;
  };
  const v1::LogPosition first = position();
  EXPECT_EQ(first.index(), store_.index());
  EXPECT_TRUE(IsRandomId(first.cluster_id()));
  Join("island");
  EXPECT_EQ(position().index(), store_.index());
  EXPECT_GT(position().index(), first.index());
  Start();
  EXPECT_EQ(position().index(), store_.index());
  EXPECT_EQ(position().cluster_id(), first.cluster_id());
  EXPECT_NE(position().start_id(), first.start_id());
}

// It must answer, so that operators learn what is wrong and servers keep what
// they have.
TEST_F(EventLoopTest, ADamagedLogIsOnlyRead) {
  const IslandCredentials island = Join("island");
  store_.SetDamage(absl::DataLossError("it has 1 batch, 2 were synced"));
  Start();
  const int64_t index = store_.index();
  Do([](Coordinator& coordinator, absl::Time now) {
    RunMachine& run = **coordinator.FindRun("run");
    EXPECT_EQ(BuildRun(run, /*with_tensors=*/false).fault().code(),
              "LOG_DAMAGED");
    EXPECT_EQ(run.Step(event::Cancel(), now).status().code(),
              absl::StatusCode::kFailedPrecondition);
  });
  const auto sink = Watch(island);
  EXPECT_TRUE(sink->has_ended);
  EXPECT_EQ(sink->end, absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(sink->offered_count, 0);
  clock_.Advance(absl::Hours(1));
  Do([](Coordinator&, absl::Time) {});
  EXPECT_EQ(store_.index(), index);
  // With the log in place it goes on.
  store_.SetDamage(absl::OkStatus());
  Start();
  Do([](Coordinator& coordinator, absl::Time now) {
    EXPECT_TRUE(
        (*coordinator.FindRun("run"))->Step(event::Cancel(), now).ok());
  });
}

TEST_F(EventLoopTest, StreamsEndWhenAPeerHasSeenMoreOfTheLog) {
  const IslandCredentials island = Join("island");
  const auto sink = Watch(island);
  EXPECT_FALSE(sink->has_ended);
  v1::LogPosition seen;
  Do([&](Coordinator& coordinator, absl::Time) {
    seen = coordinator.ServerPlan("server-0").log();
  });
  seen.set_index(seen.index() + 100);
  const auto other = std::make_shared<CountingSink>();
  loop_->WatchIsland("run", island, other, seen);
  Do([](Coordinator&, absl::Time) {});
  for (const auto& ended : {sink, other}) {
    EXPECT_TRUE(ended->has_ended);
    EXPECT_EQ(ended->end, absl::StatusCode::kFailedPrecondition);
  }
}

// Otherwise its disk would keep a cancelled run's contributions forever.
TEST_F(EventLoopTest, AServerIsToldOfARunThatHasEndedUntilItHasLetGo) {
  v1::ReportShardsRequest reports[2];
  for (int32_t shard : {0, 1}) {
    const std::string server_id = absl::StrCat("server-", shard);
    Do([&](Coordinator& coordinator, absl::Time now) {
      v1::RegisterServerRequest request;
      request.set_server_id(server_id);
      request.set_address("127.0.0.1:1");
      request.set_incarnation(1);
      EXPECT_TRUE(coordinator.RegisterServer(request, now).ok());
    });
    reports[shard].set_server_id(server_id);
    reports[shard].set_incarnation(1);
    v1::ShardReport& report = *reports[shard].add_shards();
    report.set_run_id("run");
    report.set_run_epoch(1);
    report.set_shard(shard);
    report.set_initialized(true);
    report.add_version0_digests();
  }
  const auto report = [&](int shard) {
    Do([&](Coordinator& coordinator, absl::Time now) {
      reports[shard].set_report_seq(reports[shard].report_seq() + 1);
      EXPECT_TRUE(coordinator.ReportShards(reports[shard], now).ok());
    });
  };
  const auto planned_count = [&](int shard) {
    int count = 0;
    Do([&](Coordinator& coordinator, absl::Time) {
      count = coordinator.ServerPlan(absl::StrCat("server-", shard))
                  .runs_size();
    });
    return count;
  };
  Join("island");
  v1::ContributionInfo* const info =
      reports[0].mutable_shards(0)->add_stored()->mutable_info();
  info->mutable_key()->set_run_epoch(1);
  info->mutable_key()->set_seq(1);
  for (int shard : {0, 1}) report(shard);
  Do([](Coordinator& coordinator, absl::Time now) {
    EXPECT_TRUE((*coordinator.FindRun("run"))->Step(event::Cancel(), now).ok());
  });
  EXPECT_EQ(planned_count(0), 1);
  EXPECT_EQ(planned_count(1), 0);
  reports[0].mutable_shards(0)->clear_stored();
  reports[0].mutable_shards(0)->set_held_for_pins(1);
  report(0);
  EXPECT_EQ(planned_count(0), 1);
  reports[0].mutable_shards(0)->clear_held_for_pins();
  v1::RefusedContribution* const refused =
      reports[0].mutable_shards(0)->add_refused();
  refused->mutable_key()->set_run_epoch(1);
  refused->mutable_key()->set_seq(2);
  refused->set_reason("not finite");
  report(0);
  EXPECT_EQ(planned_count(0), 1);
  reports[0].mutable_shards(0)->clear_refused();
  report(0);
  EXPECT_EQ(planned_count(0), 0);
}

TEST_F(EventLoopTest, AServerThatHasNotReportedIsToldOfARunThatHasEnded) {
  for (int32_t shard : {0, 1}) {
    Do([&](Coordinator& coordinator, absl::Time now) {
      v1::RegisterServerRequest request;
      request.set_server_id(absl::StrCat("server-", shard));
      request.set_address("127.0.0.1:1");
      request.set_incarnation(1);
      EXPECT_TRUE(coordinator.RegisterServer(request, now).ok());
    });
  }
  Do([](Coordinator& coordinator, absl::Time now) {
    EXPECT_TRUE((*coordinator.FindRun("run"))->Step(event::Cancel(), now).ok());
  });
  Do([](Coordinator& coordinator, absl::Time) {
    EXPECT_EQ(coordinator.ServerPlan("server-0").runs_size(), 1);
  });
}

}  // namespace
}  // namespace atl::coordinator
