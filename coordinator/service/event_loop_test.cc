// The loop without gRPC, on a clock that the test sets, and a store that the
// test blocks.

#include "coordinator/service/event_loop.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/features/features.h"
#include "base/random_id/random_id.h"
#include "base/status/refusal.h"
#include "base/sync/mutex.h"
#include "base/time/testing/fake_clock.h"
#include "coordinator/core/log_history.h"
#include "coordinator/core/testing/run_simulation.h"
#include "coordinator/store/testing/memory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

class CountingSink : public PlanPublisher::IslandSink {
 public:
  void Offer(EncodedIslandPlan plan) override {
    v1::WatchPlanResponse response;
    EXPECT_TRUE(response.ParseFromString(plan.head));
    revision = response.plan().revision();
    ++offered_count;
  }
  void End(absl::Status status) override {
    end = status.code();
    has_ended = true;
  }
  bool done() const override { return has_ended; }

  std::atomic<int> offered_count{0};
  std::atomic<int64_t> revision{0};
  std::atomic<absl::StatusCode> end{absl::StatusCode::kOk};
  std::atomic<bool> has_ended{false};
};

// A disk whose sync takes as long as the test says.
class BlockingStore : public MemoryLogStore {
 public:
  absl::Status Append(const Batch& batch) override {
    {
      MutexLock lock(&mutex_);
      while (blocked_) {
        waiting_ = true;
        changed_.SignalAll();
        changed_.Wait(&mutex_);
      }
    }
    return MemoryLogStore::Append(batch);
  }

  void Block() {
    MutexLock lock(&mutex_);
    blocked_ = true;
    waiting_ = false;
  }
  void AwaitAppend() {
    MutexLock lock(&mutex_);
    while (!waiting_) changed_.Wait(&mutex_);
  }
  void Release() {
    MutexLock lock(&mutex_);
    blocked_ = false;
    changed_.SignalAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool blocked_ ABSL_GUARDED_BY(mutex_) = false;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
};

class EventLoopTest : public testing::Test {
 protected:
  EventLoopTest() {
    spec_.store = &store_;
    spec_.clock = &clock_;
    spec_.metrics = &metrics_;
    spec_.fsync_seconds = &fsync_seconds_;
    spec_.on_refusal = [this](const absl::Status& refusal) {
      serving_ = refusal.ok();
    };
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

  // Queues `what`. The future has the event's answer.
  std::future<absl::Status> Post(
      std::function<void(Coordinator&, absl::Time)> what) {
    auto answered = std::make_shared<std::promise<absl::Status>>();
    loop_->Post<bool>(
        [what = std::move(what)](Coordinator& coordinator,
                                 absl::Time now) -> absl::StatusOr<bool> {
          what(coordinator, now);
          return true;
        },
        [answered](absl::StatusOr<bool> result) {
          answered->set_value(result.status());
        });
    return answered->get_future();
  }

  // Runs `what` on the loop, with everything that follows from it.
  void Do(std::function<void(Coordinator&, absl::Time)> what) {
    Post(std::move(what)).wait();
  }
  // The answer to an event that does nothing.
  absl::Status Ask() {
    return Post([](Coordinator&, absl::Time) {}).get();
  }

  // Lets time pass while the loop runs. Each step is shorter than a stall.
  void Pass(absl::Duration duration) {
    while (duration > absl::ZeroDuration()) {
      const absl::Duration step = std::min(duration, absl::Milliseconds(200));
      clock_.Advance(step);
      EXPECT_TRUE(Ask().ok());
      duration -= step;
    }
  }

  static void Register(Coordinator& coordinator, const std::string& server_id,
                       absl::Time now, int64_t incarnation = 1) {
    v1::RegisterServerRequest request;
    request.set_server_id(server_id);
    request.set_address("127.0.0.1:1");
    request.set_incarnation(incarnation);
    EXPECT_TRUE(coordinator.RegisterServer(request, now).ok());
  }

  // Queues a report of `shard`, which has `stored`.
  std::future<absl::Status> PostReport(
      int32_t shard, const std::vector<v1::ContributionInfo>& stored) {
    v1::ReportShardsRequest request;
    request.set_server_id(absl::StrCat("server-", shard));
    request.set_incarnation(1);
    request.set_report_seq(++report_seq_);
    v1::ShardReport& report = *request.add_shards();
    report.set_run_id("run");
    report.set_run_epoch(1);
    report.set_shard(shard);
    report.set_initialized(true);
    report.add_version0_digests()->set_low(1);
    for (const v1::ContributionInfo& info : stored) {
      *report.add_stored()->mutable_info() = info;
    }
    return Post([request](Coordinator& coordinator, absl::Time now) {
      EXPECT_TRUE(coordinator.ReportShards(request, now).ok());
    });
  }

  std::future<absl::Status> PostHeartbeat(const IslandCredentials& island) {
    return Post([island](Coordinator& coordinator, absl::Time now) {
      const absl::Status status = (*coordinator.FindRun("run"))
                                      ->Step(event::Heartbeat{island}, now)
                                      .status();
      EXPECT_TRUE(status.ok()) << status;
    });
  }

  // The contribution of the island in `slot` to the first round.
  static v1::ContributionInfo Contribution(int32_t slot) {
    v1::ContributionInfo info;
    info.mutable_key()->set_run_epoch(1);
    info.mutable_key()->set_slot(slot);
    info.mutable_key()->set_seq(1);
    info.mutable_digest()->set_low(slot);
    info.set_codec(v1::CODEC_F32);
    info.set_step_count(4);
    info.set_token_count(80);
    info.set_data_shard(slot);
    info.set_data_end(8);
    return info;
  }

  // The servers of the run start, and islands "a" and "b" are ready for its
  // first round.
  std::vector<IslandCredentials> StartRound() {
    for (int32_t shard : {0, 1}) {
      Do([shard](Coordinator& coordinator, absl::Time now) {
        Register(coordinator, absl::StrCat("server-", shard), now);
      });
    }
    for (int32_t shard : {0, 1}) EXPECT_TRUE(PostReport(shard, {}).get().ok());
    std::vector<IslandCredentials> islands = {Join("a"), Join("b")};
    for (const IslandCredentials& island : islands) {
      Do([island](Coordinator& coordinator, absl::Time now) {
        EXPECT_TRUE((*coordinator.FindRun("run"))
                        ->Step(event::Ready{island, 0}, now)
                        .ok());
      });
    }
    EXPECT_EQ(Round().phase, RoundPhase::kOpen);
    return islands;
  }

  FragmentState Round() {
    FragmentState round;
    EXPECT_TRUE(Ask().ok());  // Lets due timers fire.
    Do([&](Coordinator& coordinator, absl::Time) {
      round = (*coordinator.FindRun("run"))->state().fragments()[0];
    });
    return round;
  }

  // The next sync takes `duration`. A server's registration needs it.
  // `meanwhile` queues what comes during the sync.
  void SyncFor(absl::Duration duration, std::function<void()> meanwhile) {
    store_.Block();
    std::future<absl::Status> registered =
        Post([this](Coordinator& coordinator, absl::Time now) {
          Register(coordinator, "server-2", now, ++incarnation_);
        });
    store_.AwaitAppend();
    clock_.Advance(duration);
    meanwhile();
    store_.Release();
    EXPECT_TRUE(registered.get().ok());
  }

  IslandCredentials Join(const std::string& island_id,
                         const std::string& run_id = "run",
                         uint64_t features = 0) {
    IslandCredentials credentials = {island_id, 0, "secret"};
    Do([&](Coordinator& coordinator, absl::Time now) {
      v1::JoinRequest request;
      request.set_run_id(run_id);
      request.set_island_id(island_id);
      request.mutable_capabilities()->add_devices()->set_kind("cpu");
      request.mutable_capabilities()->set_data_fingerprint(
          SimpleSpec().data().fingerprint());
      request.mutable_capabilities()->set_features(features);
      const auto answer = (*coordinator.FindRun(run_id))
                              ->Step(event::Join{request, "secret"}, now);
      ASSERT_TRUE(answer.ok()) << answer.status();
      credentials.island_epoch = answer->joined.island_epoch();
    });
    return credentials;
  }

  bool IsPresent(const std::string& island_id) {
    EXPECT_TRUE(Ask().ok());  // Lets due timers fire.
    bool present = false;
    Do([&](Coordinator& coordinator, absl::Time) {
      present = (*coordinator.FindRun("run"))
                    ->state()
                    .FindMember(island_id)
                    ->present();
    });
    return present;
  }

  std::shared_ptr<CountingSink> Watch(const IslandCredentials& island,
                                      const std::string& run_id = "run") {
    auto sink = std::make_shared<CountingSink>();
    loop_->WatchIsland(run_id, island, sink);
    Ask().IgnoreError();
    return sink;
  }

  // The present value of a family with one series; nullopt: it has none.
  std::optional<double> Scrape(const std::string& name) {
    for (const prometheus::MetricFamily& family : metrics_.Collect()) {
      if (family.name != name || family.metric.empty()) continue;
      return family.type == prometheus::MetricType::Counter
                 ? family.metric[0].counter.value
                 : family.metric[0].gauge.value;
    }
    return std::nullopt;
  }

  BlockingStore store_;
  FakeClock clock_;
  RunMetrics metrics_{absl::Milliseconds(50)};
  prometheus::Histogram fsync_seconds_{{1.0}};
  std::atomic<bool> serving_{true};
  int64_t report_seq_ = 0;
  int64_t incarnation_ = 0;  // Of server-2. Used on the loop.
  const absl::Duration lease_ = IslandLeaseDuration(SimpleSpec());
  EventLoop::Spec spec_;
  std::unique_ptr<EventLoop> loop_;
};

// Otherwise leases, grace windows and deadlines would last longer by that time.
TEST_F(EventLoopTest, LeasesEndAfterAStartWithAClockThatWasSetBack) {
  Join("island");
  clock_.Set(clock_.Now() - absl::Hours(1000));
  Start();
  EXPECT_TRUE(IsPresent("island"));
  Pass(lease_ + absl::Seconds(1));
  EXPECT_FALSE(IsPresent("island"));
}

// The first event after the sync must not end the leases whose heartbeats are
// queued behind it.
TEST_F(EventLoopTest, ASyncThatOutlastsTheLeasesLosesNoMember) {
  const std::vector<IslandCredentials> islands = StartRound();
  std::vector<std::future<absl::Status>> answers;
  SyncFor(lease_ + absl::Seconds(1), [&] {
    // One island's contribution is there; the round waits for the other.
    for (int32_t shard : {0, 1}) {
      answers.push_back(PostReport(shard, {Contribution(0)}));
    }
    for (const IslandCredentials& island : islands) {
      answers.push_back(PostHeartbeat(island));
    }
  });
  for (std::future<absl::Status>& answer : answers) {
    EXPECT_TRUE(answer.get().ok());
  }
  EXPECT_TRUE(IsPresent("a"));
  EXPECT_TRUE(IsPresent("b"));
  EXPECT_EQ(Round().phase, RoundPhase::kOpen);
  for (int32_t shard : {0, 1}) {
    PostReport(shard, {Contribution(0), Contribution(1)}).wait();
  }
  const FragmentState round = Round();
  ASSERT_EQ(round.phase, RoundPhase::kSealed);
  EXPECT_EQ(round.sealed.seal().contributions_size(), 2);
}

// Their heartbeats may be under way, or in gRPC's queues.
TEST_F(EventLoopTest, ASyncThatOutlastsTheLeasesLeavesTheirRestAfterIt) {
  StartRound();
  SyncFor(absl::Hours(1), [] {});
  EXPECT_TRUE(IsPresent("a"));
  EXPECT_TRUE(IsPresent("b"));
  Do([](Coordinator& coordinator, absl::Time) {
    EXPECT_TRUE(coordinator.FindServer("server-0")->alive);
  });
  Pass(lease_ - absl::Seconds(1));
  EXPECT_TRUE(IsPresent("a"));
  Pass(absl::Seconds(2));
  EXPECT_FALSE(IsPresent("a"));
}

TEST_F(EventLoopTest, AProcessThatWasStoppedLosesNoMember) {
  StartRound();
  clock_.Advance(absl::Hours(1));  // As seen after SIGSTOP and SIGCONT.
  EXPECT_TRUE(IsPresent("a"));
  EXPECT_TRUE(IsPresent("b"));
  Do([](Coordinator& coordinator, absl::Time) {
    EXPECT_TRUE(coordinator.FindServer("server-0")->alive);
  });
  Pass(lease_ + absl::Seconds(1));
  EXPECT_FALSE(IsPresent("a"));
}

// Otherwise a lost island would hold up its run for as long as the disk is
// slow.
TEST_F(EventLoopTest, LeasesEndThoughEverySyncIsSlow) {
  const IslandCredentials alive = StartRound()[0];
  for (int i = 0; i < 200; ++i) {
    SyncFor(absl::Seconds(1), [] {});
    PostHeartbeat(alive).wait();
  }
  EXPECT_FALSE(IsPresent("b"));
  EXPECT_TRUE(IsPresent("a"));
}

TEST_F(EventLoopTest, AStoreThatTakesRecordsAgainServesAgain) {
  const IslandCredentials island = Join("a");
  const auto sink = Watch(island);
  const int offered_count = sink->offered_count;
  const int64_t revision = sink->revision;
  ASSERT_GT(offered_count, 0);
  store_.FailAppends(absl::DataLossError("an input/output error"));
  const absl::Status refused =
      Post([](Coordinator& coordinator, absl::Time now) {
        Register(coordinator, "server-0", now);
      }).get();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(GetReason(refused).value_or(ErrorReason()).reason, "DISK_FAILS");
  EXPECT_THAT(std::string(refused.message()),
              testing::HasSubstr("an input/output error"));
  EXPECT_FALSE(serving_);
  for (int i = 0; i < 3; ++i) {
    clock_.Advance(absl::Minutes(4));
    EXPECT_EQ(Ask().code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_EQ(Watch(island)->end, absl::StatusCode::kUnavailable);
  EXPECT_FALSE(sink->has_ended);
  EXPECT_EQ(sink->offered_count, offered_count);
  EXPECT_FALSE(serving_);
  store_.FailAppends(absl::OkStatus());
  clock_.Advance(spec_.recovery_period);
  EXPECT_TRUE(Ask().ok());
  EXPECT_TRUE(serving_);
  EXPECT_FALSE(sink->has_ended);
  EXPECT_GT(sink->offered_count, offered_count);
  EXPECT_GT(sink->revision, revision);
  EXPECT_TRUE(IsPresent("a"));
  Do([](Coordinator& coordinator, absl::Time) {
    EXPECT_EQ(coordinator.FindServer("server-0"), nullptr);
  });
  EXPECT_FALSE(Watch(island)->has_ended);
}

TEST_F(EventLoopTest, OneIslandCannotTakeTheStreamsOfOthers) {
  spec_.plan_streams.islands.all = 8;
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

TEST_F(EventLoopTest, OneRunCannotTakeTheStreamsOfOthers) {
  // Five full runs fit.
  EXPECT_GE(PlanPublisher::Bounds().islands.all, 5 * 1024);
  // The control benchmark has no more.
  EXPECT_LE(PlanPublisher::Bounds().islands.all, 10'000);
  EXPECT_GE(PlanPublisher::Bounds().islands.a_run, 1024);
  spec_.plan_streams.islands = {.all = 8, .a_run = 2};
  Start();
  Do([](Coordinator& coordinator, absl::Time now) {
    v1::CreateRunRequest request;
    request.set_run_id("other");
    *request.mutable_spec() = SimpleSpec();
    EXPECT_TRUE(coordinator.CreateRun(request, now).ok());
  });
  std::vector<std::shared_ptr<CountingSink>> sinks;
  for (const char* id : {"a", "b", "c"}) sinks.push_back(Watch(Join(id)));
  EXPECT_FALSE(sinks[0]->has_ended);
  EXPECT_FALSE(sinks[1]->has_ended);
  EXPECT_EQ(sinks[2]->end, absl::StatusCode::kResourceExhausted);
  const auto sink = Watch(Join("a", "other"), "other");
  EXPECT_FALSE(sink->has_ended);
  EXPECT_GT(sink->offered_count, 0);
}

TEST_F(EventLoopTest, AnIslandIsAwayOnceItsLastPlanStreamHasEnded) {
  Do([](Coordinator& coordinator, absl::Time now) {
    v1::CreateRunRequest request;
    request.set_run_id("elastic");
    *request.mutable_spec() = ElasticSpec();
    EXPECT_TRUE(coordinator.CreateRun(request, now).ok());
  });
  const IslandCredentials island = Join("a", "elastic", ProgramFeatures());
  const auto is_away = [this] {
    EXPECT_TRUE(Ask().ok());
    bool away = false;
    Do([&](Coordinator& coordinator, absl::Time) {
      away = (*coordinator.FindRun("elastic"))->observed().members[0].away;
    });
    return away;
  };
  const auto first = Watch(island, "elastic");
  const auto second = Watch(island, "elastic");
  first->has_ended = true;
  Pass(absl::Seconds(5));
  EXPECT_FALSE(is_away()) << "it has another stream";
  second->has_ended = true;
  Pass(absl::Seconds(1));
  const auto third = Watch(island, "elastic");
  Pass(absl::Seconds(5));
  EXPECT_FALSE(is_away()) << "the stream was replaced";
  third->has_ended = true;
  clock_.Advance(absl::Milliseconds(300));
  const auto fourth = Watch(island, "elastic");
  Pass(absl::Seconds(5));
  EXPECT_FALSE(is_away()) << "one batch saw the end and the new stream";
  fourth->has_ended = true;
  Pass(absl::Seconds(1));
  EXPECT_FALSE(is_away());
  Pass(absl::Seconds(2));
  EXPECT_TRUE(is_away());

  // A stream that is refused is none.
  spec_.plan_streams.islands.a_run = 0;
  Start();
  const IslandCredentials again = Join("a", "elastic", ProgramFeatures());
  EXPECT_EQ(Watch(again, "elastic")->end, absl::StatusCode::kResourceExhausted);
  Pass(absl::Seconds(3));
  EXPECT_TRUE(is_away());
}

TEST_F(EventLoopTest, APlanStreamThatOutlivesAFailedAppendCounts) {
  Do([](Coordinator& coordinator, absl::Time now) {
    v1::CreateRunRequest request;
    request.set_run_id("elastic");
    *request.mutable_spec() = ElasticSpec();
    EXPECT_TRUE(coordinator.CreateRun(request, now).ok());
  });
  const auto sink = Watch(Join("a", "elastic", ProgramFeatures()), "elastic");
  Join("b", "elastic", ProgramFeatures());
  store_.FailAppends(absl::DataLossError("an input/output error"));
  EXPECT_FALSE(Post([](Coordinator& coordinator, absl::Time now) {
                 Register(coordinator, "server-0", now);
               }).get().ok());
  store_.FailAppends(absl::OkStatus());
  clock_.Advance(spec_.recovery_period);
  Pass(kReconnectGrace + absl::Seconds(2));
  EXPECT_FALSE(sink->has_ended);
  std::vector<bool> away;
  Do([&](Coordinator& coordinator, absl::Time) {
    for (const ObservedMember& member :
         (*coordinator.FindRun("elastic"))->observed().members) {
      away.push_back(member.away);
    }
  });
  EXPECT_THAT(away, testing::ElementsAre(false, true));
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
  EXPECT_FALSE(serving_);
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

// Records before the damage can still be read and exported.
TEST_F(EventLoopTest, ARecordThatCannotBeReadBackLeavesWhatIsBeforeIt) {
  Join("first");
  int64_t revision = 0;
  Do([&](Coordinator& coordinator, absl::Time) {
    revision = (*coordinator.FindRun("run"))->state().revision();
  });
  Join("second");
  store_.DamageRecordsAfter("run", revision);
  Start();
  Do([&](Coordinator& coordinator, absl::Time) {
    const RunMachine& run = **coordinator.FindRun("run");
    EXPECT_EQ(run.state().revision(), revision);
    EXPECT_EQ(BuildRun(run, /*with_tensors=*/false).fault().code(),
              "LOG_DAMAGED");
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
  // As a coordinator with a newer copy of this log has given it.
  const auto records = store_.Scan("", 0, 1);
  ASSERT_TRUE(records.ok());
  seen.set_proof(ProvePosition(
      records->front().coordinator_started().log_secret(), seen));
  const auto other = std::make_shared<CountingSink>();
  loop_->WatchIsland("run", island, other, seen);
  Do([](Coordinator&, absl::Time) {});
  for (const auto& ended : {sink, other}) {
    EXPECT_TRUE(ended->has_ended);
    EXPECT_EQ(ended->end, absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_FALSE(serving_);
}

// Otherwise its disk would keep a cancelled run's contributions forever.
TEST_F(EventLoopTest, AServerIsToldOfARunThatHasEndedUntilItHasLetGo) {
  v1::ReportShardsRequest reports[2];
  for (int32_t shard : {0, 1}) {
    const std::string server_id = absl::StrCat("server-", shard);
    Do([&](Coordinator& coordinator, absl::Time now) {
      Register(coordinator, server_id, now);
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

// Another run has its id at once: the streams must not go on with that one.
TEST_F(EventLoopTest, StreamsOfADeletedRunEndAndItsIdIsFree) {
  const auto sink = Watch(Join("island"));
  EXPECT_FALSE(sink->has_ended);
  Do([](Coordinator& coordinator, absl::Time now) {
    EXPECT_TRUE((*coordinator.FindRun("run"))->Step(event::Cancel(), now).ok());
    EXPECT_TRUE(coordinator.DeleteRun("run", "", now).ok());
    v1::CreateRunRequest request;
    request.set_run_id("run");
    *request.mutable_spec() = SimpleSpec();
    EXPECT_TRUE(coordinator.CreateRun(request, now, "second").ok());
  });
  EXPECT_TRUE(sink->has_ended);
  EXPECT_EQ(sink->end, absl::StatusCode::kNotFound);
  const auto check = [](Coordinator& coordinator, absl::Time) {
    const auto run = coordinator.FindRun("run");
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ((*run)->state().run_uid(), "second");
    EXPECT_TRUE((*run)->state().members().empty());
  };
  Do(check);
  Start();
  Do(check);
  Do([](Coordinator& coordinator, absl::Time now) {
    EXPECT_TRUE((*coordinator.FindRun("run"))->Step(event::Cancel(), now).ok());
    EXPECT_TRUE(coordinator.DeleteRun("run", "second", now).ok());
  });
  Start();
  Do([](Coordinator& coordinator, absl::Time) {
    EXPECT_TRUE(absl::IsNotFound(coordinator.FindRun("run").status()));
  });
}

// A shard must hear that a released checkpoint is no longer needed.
TEST_F(EventLoopTest, AServerIsToldOfAnEndedRunWhileItReportsACheckpoint) {
  v1::ReportShardsRequest report;
  for (int32_t shard : {0, 1}) {
    Do([&](Coordinator& coordinator, absl::Time now) {
      v1::RegisterServerRequest request;
      request.set_server_id(absl::StrCat("server-", shard));
      request.set_address("127.0.0.1:1");
      request.set_incarnation(1);
      EXPECT_TRUE(coordinator.RegisterServer(request, now).ok());
    });
  }
  report.set_server_id("server-0");
  report.set_incarnation(1);
  report.add_shards()->set_run_id("run");
  report.mutable_shards(0)->set_run_epoch(1);
  report.mutable_shards(0)->add_checkpoints()->set_pin_id("final");
  int planned_count = 0;
  const auto send = [&] {
    Do([&](Coordinator& coordinator, absl::Time now) {
      report.set_report_seq(report.report_seq() + 1);
      EXPECT_TRUE(coordinator.ReportShards(report, now).ok());
      planned_count = coordinator.ServerPlan("server-0").runs_size();
    });
  };
  send();
  Do([](Coordinator& coordinator, absl::Time now) {
    EXPECT_TRUE((*coordinator.FindRun("run"))->Step(event::Cancel(), now).ok());
  });
  send();
  EXPECT_EQ(planned_count, 1);
  report.mutable_shards(0)->clear_checkpoints();
  send();
  EXPECT_EQ(planned_count, 0);
}

TEST_F(EventLoopTest, AServerThatHasNotReportedIsToldOfARunThatHasEnded) {
  for (int32_t shard : {0, 1}) {
    Do([&](Coordinator& coordinator, absl::Time now) {
      Register(coordinator, absl::StrCat("server-", shard), now);
    });
  }
  Do([](Coordinator& coordinator, absl::Time now) {
    EXPECT_TRUE((*coordinator.FindRun("run"))->Step(event::Cancel(), now).ok());
  });
  Do([](Coordinator& coordinator, absl::Time) {
    EXPECT_EQ(coordinator.ServerPlan("server-0").runs_size(), 1);
  });
}

// --- Plans -------------------------------------------------------------------

TEST_F(EventLoopTest, ChangesInAShortTimeMakeOnePlanThatComesByItself) {
  const IslandCredentials island = Join("a");
  const auto sink = Watch(island);
  const int first_count = sink->offered_count;
  Pass(absl::Seconds(1));
  // The second one places the run; later ones change its placement.
  for (const int incarnation : {1, 2, 3}) {
    for (const char* id : {"server-0", "server-1"}) {
      Do([=](Coordinator& coordinator, absl::Time now) {
        Register(coordinator, id, now, incarnation);
      });
    }
  }
  EXPECT_EQ(sink->offered_count, first_count + 1);
  clock_.Advance(PlanPublisher::kGap);
  while (sink->offered_count < first_count + 2) std::this_thread::yield();
  Pass(absl::Seconds(1));
  EXPECT_EQ(sink->offered_count, first_count + 2);
}

TEST_F(EventLoopTest, AHeartbeatSendsNoPlan) {
  const std::vector<IslandCredentials> islands = StartRound();
  const auto sink = Watch(islands[0]);
  Pass(absl::Seconds(1));
  const int before = sink->offered_count;
  for (int i = 0; i < 10; ++i) {
    PostHeartbeat(islands[1]).wait();
    clock_.Advance(absl::Milliseconds(100));
  }
  EXPECT_EQ(sink->offered_count, before);
}

// --- Floods ------------------------------------------------------------------

TEST_F(EventLoopTest, ACallWhoseCallerIsGoneIsNotDecided) {
  std::atomic<bool> is_gone = false, is_decided = false;
  std::promise<absl::Status> answered;
  SyncFor(absl::Seconds(1), [&] {
    CallOrigin origin;
    origin.is_gone = [&] { return is_gone.load(); };
    loop_->Post<bool>(
        [&](Coordinator&, absl::Time) -> absl::StatusOr<bool> {
          is_decided = true;
          return true;
        },
        [&](absl::StatusOr<bool> result) {
          answered.set_value(result.status());
        },
        origin);
    is_gone = true;
  });
  EXPECT_EQ(answered.get_future().get().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(is_decided);
}

TEST_F(EventLoopTest, CallsAreDecidedByRankAndOfEachRunInTurn) {
  std::vector<std::string> decided;  // Used on the loop.
  std::vector<std::future<absl::Status>> answers;
  const auto post = [&](const std::string& name, CallRank rank,
                        const std::string& run_id = "") {
    auto answered = std::make_shared<std::promise<absl::Status>>();
    CallOrigin origin;
    origin.rank = rank;
    origin.run_id = run_id;
    loop_->Post<bool>(
        [&, name](Coordinator&, absl::Time) -> absl::StatusOr<bool> {
          decided.push_back(name);
          return true;
        },
        [answered](absl::StatusOr<bool> result) {
          answered->set_value(result.status());
        },
        origin);
    answers.push_back(answered->get_future());
  };
  SyncFor(absl::Seconds(1), [&] {
    post("reader", CallRank::kReader, "a");
    post("operator", CallRank::kOperator, "a");
    post("island a1", CallRank::kIsland, "a");
    post("island a2", CallRank::kIsland, "a");
    post("island a3", CallRank::kIsland, "a");
    post("island b1", CallRank::kIsland, "b");
    post("server", CallRank::kServer);
  });
  for (std::future<absl::Status>& answer : answers) {
    EXPECT_TRUE(answer.get().ok());
  }
  EXPECT_THAT(decided,
              testing::ElementsAre("server", "island a1", "island b1",
                                   "island a2", "island a3", "operator",
                                   "reader"));
}

TEST_F(EventLoopTest, OneCallerDoesNotFillTheQueue) {
  spec_.waiting.a_caller.call_count = 3;
  Start();
  std::vector<std::future<absl::Status>> answers;
  const auto ask = [&](const std::string& caller) {
    auto answered = std::make_shared<std::promise<absl::Status>>();
    CallOrigin origin;
    origin.caller = caller;
    loop_->Post<bool>(
        [](Coordinator&, absl::Time) -> absl::StatusOr<bool> { return true; },
        [answered](absl::StatusOr<bool> result) {
          answered->set_value(result.status());
        },
        origin);
    answers.push_back(answered->get_future());
  };
  SyncFor(absl::Seconds(1), [&] {
    for (int i = 0; i < 5; ++i) ask("island:greedy");
    ask("island:other");
  });
  for (int i = 0; i < 6; ++i) {
    const absl::Status answer = answers[i].get();
    EXPECT_EQ(HasReason(answer, "QUEUE_FULL"), i == 3 || i == 4) << answer;
  }
  // What was answered counts no longer.
  ask("island:greedy");
  EXPECT_TRUE(answers.back().get().ok());
}

TEST_F(EventLoopTest, StreamsCountAmongACallersCalls) {
  spec_.waiting.a_caller.call_count = 2;
  Start();
  const IslandCredentials island = Join("a");
  CallOrigin origin;
  origin.caller = "island:a";
  std::vector<std::shared_ptr<CountingSink>> sinks(3);
  SyncFor(absl::Seconds(1), [&] {
    for (std::shared_ptr<CountingSink>& sink : sinks) {
      sink = std::make_shared<CountingSink>();
      loop_->WatchIsland("run", island, sink, {}, EventLoop::AllowAny, origin);
    }
    EXPECT_EQ(sinks[2]->end, absl::StatusCode::kResourceExhausted);
  });
  EXPECT_TRUE(Ask().ok());
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(sinks[i]->has_ended) << i;
}

TEST_F(EventLoopTest, ALongQueueKeepsFewAnswersAndLosesNoMember) {
  const std::vector<IslandCredentials> islands = StartRound();
  int decided = 0, answered = 0, kept_max = 0;  // Used on the loop.
  std::vector<std::future<absl::Status>> heartbeats;
  SyncFor(lease_ + absl::Seconds(1), [&] {
    for (int i = 0; i < 64; ++i) {
      loop_->Post<v1::GetRunResponse>(
          [&](Coordinator&, absl::Time) -> absl::StatusOr<v1::GetRunResponse> {
            kept_max = std::max(kept_max, ++decided - answered);
            v1::GetRunResponse large;
            large.mutable_run()->set_state_reason(std::string(1 << 20, 'x'));
            return large;
          },
          [&](absl::StatusOr<v1::GetRunResponse> answer) {
            answered += answer.ok();
          });
    }
    for (const IslandCredentials& island : islands) {
      heartbeats.push_back(PostHeartbeat(island));
    }
  });
  for (std::future<absl::Status>& answer : heartbeats) {
    EXPECT_TRUE(answer.get().ok());
  }
  EXPECT_EQ(answered, 64);
  EXPECT_LE(kept_max, 8);
  EXPECT_TRUE(IsPresent("a"));
  EXPECT_TRUE(IsPresent("b"));
}

TEST_F(EventLoopTest, AHeartbeatWaitsForFewCallsOfReaders) {
  int read_count = 0;  // Used on the loop.
  std::future<absl::Status> heartbeat;
  std::promise<int> seen;
  std::vector<std::future<absl::Status>> reads;
  SyncFor(absl::Seconds(1), [&] {
    for (int i = 0; i < 64; ++i) {
      auto answered = std::make_shared<std::promise<absl::Status>>();
      CallOrigin origin;
      origin.rank = CallRank::kReader;
      loop_->Post<bool>(
          [&, i](Coordinator&, absl::Time) -> absl::StatusOr<bool> {
            ++read_count;
            if (i > 0) return true;
            // It comes while the others wait.
            heartbeat = Post([&](Coordinator&, absl::Time) {
              seen.set_value(read_count);
            });
            return true;
          },
          [answered](absl::StatusOr<bool> result) {
            answered->set_value(result.status());
          },
          origin);
      reads.push_back(answered->get_future());
    }
  });
  EXPECT_LE(seen.get_future().get(), 8);
  for (std::future<absl::Status>& read : reads) EXPECT_TRUE(read.get().ok());
  EXPECT_TRUE(heartbeat.get().ok());
}

// --- Stops -------------------------------------------------------------------

TEST_F(EventLoopTest, AStopDecidesAndSyncsWhatWasAccepted) {
  spec_.waiting.all.call_count = 1 << 20;
  Start();
  const auto sink = Watch(Join("a"));
  store_.Block();
  std::future<absl::Status> before =
      Post([](Coordinator& coordinator, absl::Time now) {
        Register(coordinator, "server-0", now);
      });
  store_.AwaitAppend();
  std::future<absl::Status> accepted =
      Post([](Coordinator& coordinator, absl::Time now) {
        Register(coordinator, "server-1", now);
      });
  std::thread stopper([this] { loop_->Stop(); });
  absl::Status refused;
  while (refused.ok()) {
    std::future<absl::Status> asked = Post([](Coordinator&, absl::Time) {});
    // Only a refusal is answered while the sync lasts.
    if (asked.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
      refused = asked.get();
      break;
    }
  }
  store_.Release();
  stopper.join();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(GetReason(refused).value_or(ErrorReason()).reason, "STOPPING");
  EXPECT_TRUE(before.get().ok());
  EXPECT_TRUE(accepted.get().ok());
  EXPECT_EQ(sink->end, absl::StatusCode::kUnavailable);
  Start();
  Do([](Coordinator& coordinator, absl::Time) {
    EXPECT_NE(coordinator.FindServer("server-0"), nullptr);
    EXPECT_NE(coordinator.FindServer("server-1"), nullptr);
  });
}

// --- Metrics -----------------------------------------------------------------

TEST_F(EventLoopTest, AScrapeIsAnsweredWhileASyncHangs) {
  StartRound();
  while (Scrape("atoll_commits_total") != 0) {
  }
  const double wait_start =
      *Scrape("atoll_round_wait_start_timestamp_seconds");
  EXPECT_EQ(wait_start, absl::ToUnixSeconds(clock_.Now()));
  SyncFor(absl::Seconds(1), [&] {
    PostReport(0, {Contribution(0)});
    EXPECT_EQ(Scrape("atoll_round_wait_start_timestamp_seconds"), wait_start);
  });
}

TEST_F(EventLoopTest, EachSyncedAppendIsMeasured) {
  const auto before = fsync_seconds_.Collect().histogram;
  SyncFor(absl::Seconds(3), [] {});
  const auto after = fsync_seconds_.Collect().histogram;
  EXPECT_EQ(after.sample_count, before.sample_count + 1);
  EXPECT_EQ(after.sample_sum, before.sample_sum + 3);
  EXPECT_TRUE(Ask().ok());  // Writes nothing.
  EXPECT_EQ(fsync_seconds_.Collect().histogram.sample_count,
            after.sample_count);
}

// Reads a number for `key` and counts the builds.
class ReadsTest : public EventLoopTest {
 protected:
  std::future<absl::StatusOr<int>> Read(
      const std::string& key, absl::Status check = absl::OkStatus(),
      absl::Duration cost = absl::ZeroDuration(), CallOrigin origin = {}) {
    auto answered = std::make_shared<std::promise<absl::StatusOr<int>>>();
    loop_->Read<int>(
        key, [check](Coordinator&) { return check; },
        [this, cost](Coordinator& coordinator, absl::Time) {
          clock_.Advance(cost);
          ++build_count_;
          const int number =
              coordinator.FindServer("server-0") != nullptr ? 1 : 0;
          return [number] { return number; };
        },
        [answered](absl::StatusOr<std::shared_ptr<const int>> view) {
          if (view.ok()) return answered->set_value(**view);
          answered->set_value(view.status());
        },
        std::move(origin));
    return answered->get_future();
  }

  std::atomic<int> build_count_{0};
};

TEST_F(ReadsTest, CallsThatWaitTogetherShareOneView) {
  store_.Block();
  auto registered = Post([](Coordinator& coordinator, absl::Time now) {
    Register(coordinator, "server-0", now);
  });
  store_.AwaitAppend();
  std::vector<std::future<absl::StatusOr<int>>> reads;
  for (int i = 0; i < 50; ++i) reads.push_back(Read("a"));
  auto other = Read("b");
  auto refused = Read("a", absl::NotFoundError("test"));
  auto gone = Read("a", absl::OkStatus(), absl::ZeroDuration(),
                   {.is_gone = [] { return true; }});
  EXPECT_EQ(build_count_, 0) << "nothing is read that is not durable";
  store_.Release();
  for (auto& read : reads) EXPECT_EQ(*read.get(), 1);
  EXPECT_EQ(*other.get(), 1);
  EXPECT_EQ(refused.get().status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(gone.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(build_count_, 2);
  EXPECT_TRUE(registered.get().ok());
}

TEST_F(ReadsTest, ABuildThatCostsMuchIsFollowedByARest) {
  EXPECT_TRUE(
      Read("a", absl::OkStatus(), absl::Milliseconds(10)).get().ok());
  auto second = Read("a");
  auto other = Read("b");
  EXPECT_TRUE(Ask().ok());
  EXPECT_TRUE(Ask().ok());
  EXPECT_EQ(build_count_, 1);
  clock_.Advance(absl::Milliseconds(90));
  EXPECT_TRUE(second.get().ok());
  EXPECT_TRUE(other.get().ok());
  EXPECT_EQ(build_count_, 3);
}

TEST_F(ReadsTest, AViewAnswersAFewReadersThatWaitAndAllOthers) {
  EXPECT_TRUE(
      Read("a", absl::OkStatus(), absl::Milliseconds(10)).get().ok());
  std::vector<std::future<absl::StatusOr<int>>> readers;
  for (int i = 0; i < 20; ++i) {
    readers.push_back(Read("a", absl::OkStatus(), absl::ZeroDuration(),
                           {.rank = CallRank::kReader}));
    // Calls that wait for a batch are not all of one.
    EXPECT_TRUE(Ask().ok());
  }
  std::vector<std::future<absl::StatusOr<int>>> islands;
  for (int i = 0; i < 20; ++i) {
    islands.push_back(Read("a", absl::OkStatus(), absl::ZeroDuration(),
                           {.rank = CallRank::kIsland}));
  }
  EXPECT_TRUE(Ask().ok());
  clock_.Advance(absl::Milliseconds(90));
  for (auto& read : islands) EXPECT_TRUE(read.get().ok());
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(readers[i].get().ok());
  EXPECT_TRUE(Ask().ok());
  EXPECT_EQ(build_count_, 2);
  clock_.Advance(absl::Milliseconds(30));
  for (int i = 16; i < 20; ++i) EXPECT_TRUE(readers[i].get().ok());
  EXPECT_EQ(build_count_, 3);
}

TEST_F(ReadsTest, AnOperatorsReadComesBeforeReaders) {
  constexpr absl::Duration kCost = absl::Milliseconds(10);
  EXPECT_TRUE(Read("a", absl::OkStatus(), kCost).get().ok());
  auto reader =
      Read("b", absl::OkStatus(), kCost, {.rank = CallRank::kReader});
  EXPECT_TRUE(Ask().ok());
  auto own = Read("c", absl::OkStatus(), kCost, {.rank = CallRank::kOperator});
  EXPECT_TRUE(Ask().ok());
  clock_.Advance(absl::Milliseconds(90));
  EXPECT_TRUE(own.get().ok());
  EXPECT_TRUE(Ask().ok());
  EXPECT_EQ(build_count_, 2);
  clock_.Advance(absl::Milliseconds(90));
  EXPECT_TRUE(reader.get().ok());
}

TEST_F(ReadsTest, WaitingReadsEndWhenTheLoopStopsOrItsDiskFails) {
  EXPECT_TRUE(
      Read("a", absl::OkStatus(), absl::Milliseconds(10)).get().ok());
  auto waiting = Read("a");
  EXPECT_TRUE(Ask().ok());
  store_.FailAppends(absl::DataLossError("an input/output error"));
  EXPECT_FALSE(Post([](Coordinator& coordinator, absl::Time now) {
                 Register(coordinator, "server-0", now);
               }).get().ok());
  EXPECT_EQ(waiting.get().status().code(), absl::StatusCode::kUnavailable);
  store_.FailAppends(absl::OkStatus());
  Start();
  EXPECT_TRUE(
      Read("a", absl::OkStatus(), absl::Milliseconds(10)).get().ok());
  auto last = Read("a");
  EXPECT_TRUE(Ask().ok());
  loop_->Stop();
  EXPECT_EQ(last.get().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(build_count_, 2);
}

TEST_F(ReadsTest, ACallersBoundHoldsWhileItsReadsWait) {
  spec_.waiting.a_caller.call_count = 2;
  Start();
  EXPECT_TRUE(
      Read("a", absl::OkStatus(), absl::Milliseconds(10)).get().ok());
  const CallOrigin greedy = {.caller = "reader:greedy"};
  const auto ask = [&] {
    return Read("a", absl::OkStatus(), absl::ZeroDuration(), greedy);
  };
  auto first = ask();
  auto second = ask();
  EXPECT_TRUE(Ask().ok());
  EXPECT_EQ(ask().get().status().code(),
            absl::StatusCode::kResourceExhausted);
  clock_.Advance(absl::Milliseconds(90));
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
}

}  // namespace
}  // namespace atl::coordinator
