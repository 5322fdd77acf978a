// Whole islands over an in-memory service; everything else is real.

#include "worker/api/run_island.h"

#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/features/features.h"
#include "base/layout/held_layout.h"
#include "base/layout/layout.h"
#include "base/metrics/metrics.h"
#include "base/obs/log.h"
#include "base/status/refusal.h"
#include "base/sync/mutex.h"
#include "base/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/client/bandwidth.h"
#include "worker/api/testing/island_fixture.h"
#include "worker/api/train_alone.h"
#include "worker/island/testing/memory_service.h"
#include "worker/island/testing/tiny_run.h"

namespace atl::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class RunIslandTest : public IslandFixture {};

TEST_F(RunIslandTest, TrainsARunToItsEnd) {
  TinyRunOptions tiny = Tiny(1);
  tiny.inner_step_count = 10;
  tiny.round_count = 4;
  MemoryService service(TinyRun(tiny));
  const auto result = RunOne(service, Options("a"));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(service.version(), 4);
  EXPECT_EQ(result->step, 40);
  EXPECT_EQ(result->token_count, 40 * 4 * 16);
  EXPECT_GT(result->sent_bytes, 0);
  EXPECT_EQ(result->measured.pushed.bytes, result->sent_bytes);
  EXPECT_EQ(result->measured.pulled.bytes, result->received_bytes);
  ASSERT_TRUE(result->forecast.has_value());
  EXPECT_EQ(result->forecast->up_bytes, result->sent_bytes / 4);
  EXPECT_GT(result->utilization, 0);
  EXPECT_LT(result->utilization, 1);
  const auto evaluations = service.evaluations();
  ASSERT_EQ(evaluations.size(), 4);
  EXPECT_LT(evaluations.back().loss(), evaluations.front().loss() - 0.1);
  EXPECT_EQ(service.leave_count(), 0);
}

TEST(ParameterOptionsTest, ProcessesShareTheIslandsCapsAsTheyDoTheModel) {
  v1::Run run;
  *run.mutable_spec() = TinyRun(TinyRunOptions());
  const absl::StatusOr<RunLayout> layout =
      RunLayout::Create(run.spec().layout());
  ASSERT_TRUE(layout.ok()) << layout.status();
  RunIslandOptions options;
  options.caps = {.up_bytes_per_second = 1e6, .down_bytes_per_second = 4e6};
  const auto caps = [&](const HeldLayout& held) {
    const auto data = MakeParameterOptions(options, run, held);
    EXPECT_TRUE(data.ok()) << data.status();
    return data->caps;
  };
  // One process has the whole cap.
  const server::BandwidthCaps all = caps(HeldLayout(*layout));
  EXPECT_EQ(all.up_bytes_per_second, 1e6);
  EXPECT_EQ(all.down_bytes_per_second, 4e6);
  // Two equal processes share it.
  const int64_t end = layout->element_count();
  int64_t middle = 0;
  for (const TensorPlace& tensor : layout->tensors()) {
    if (middle < end / 2) middle += tensor.element_count;
  }
  server::BandwidthCaps sum;
  for (const IndexRange& span : {IndexRange{0, middle}, {middle, end}}) {
    const absl::StatusOr<HeldLayout> held = HeldLayout::Create(*layout, {span});
    ASSERT_TRUE(held.ok()) << held.status();
    const server::BandwidthCaps part = caps(*held);
    EXPECT_NEAR(part.up_bytes_per_second,
                1e6 * static_cast<double>(span.size()) / end, 1e-6);
    sum.up_bytes_per_second += part.up_bytes_per_second;
    sum.down_bytes_per_second += part.down_bytes_per_second;
  }
  EXPECT_NEAR(sum.up_bytes_per_second, 1e6, 1e-6);
  EXPECT_NEAR(sum.down_bytes_per_second, 4e6, 1e-6);
}

TEST(ParameterOptionsTest, APartThatIsTooNarrowIsRefused) {
  v1::Run run;
  *run.mutable_spec() = TinyRun(TinyRunOptions());
  const RunLayout layout = *RunLayout::Create(run.spec().layout());
  const IndexRange first = {0, layout.tensors()[0].element_count};
  const HeldLayout held = *HeldLayout::Create(layout, {first});
  RunIslandOptions options;
  options.caps.up_bytes_per_second = server::kCapBytesPerSecondMin;
  EXPECT_TRUE(MakeParameterOptions(options, run, HeldLayout(layout)).ok());
  options.place.process_count = 2;
  EXPECT_TRUE(absl::IsInvalidArgument(
      MakeParameterOptions(options, run, held).status()));
  // The cap suffices for all processes; this one has the least share.
  options.caps.up_bytes_per_second = 2 * server::kCapBytesPerSecondMin;
  const auto least = MakeParameterOptions(options, run, held);
  ASSERT_TRUE(least.ok()) << least.status();
  EXPECT_EQ(least->caps.up_bytes_per_second, server::kCapBytesPerSecondMin);
  options.caps.up_bytes_per_second -= 1;
  EXPECT_TRUE(absl::IsInvalidArgument(
      MakeParameterOptions(options, run, held).status()));
  // A process that holds nothing needs nothing.
  EXPECT_TRUE(
      MakeParameterOptions(options, run, *HeldLayout::Create(layout, {}))
          .ok());
}

TEST_F(RunIslandTest, OneIslandWithSgdEqualsPlainTrainingBitForBit) {
  TinyRunOptions tiny = Tiny(1);
  tiny.adamw = false;
  tiny.inner_step_count = 1;
  tiny.round_count = 12;
  const v1::RunSpec spec = TinyRun(tiny);
  MemoryService service(spec);
  ASSERT_TRUE(RunOne(service, Options("a")).ok());
  TrainAloneOptions alone;
  alone.spec = spec;
  const auto plain = TrainAlone(alone);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(service.parameters_sha256(), plain->parameters_sha256);
  EXPECT_EQ(service.parameters(), plain->parameters);
}

TEST_F(RunIslandTest, OneIslandWithAdamwEqualsPlainTrainingWithItsRounding) {
  TinyRunOptions tiny = Tiny(1);
  tiny.inner_step_count = 1;
  tiny.round_count = 12;
  const v1::RunSpec spec = TinyRun(tiny);
  MemoryService service(spec);
  ASSERT_TRUE(RunOne(service, Options("a")).ok());
  TrainAloneOptions alone;
  alone.spec = spec;
  alone.outer_round_trip = true;
  const auto plain = TrainAlone(alone);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(service.parameters_sha256(), plain->parameters_sha256);
}

TEST_F(RunIslandTest, StrictRunsGiveTheSameBitsForAnyTimingAndThreads) {
  for (int32_t fragment_count : {1, 2}) {
    TinyRunOptions tiny = Tiny(3);
    tiny.fragment_count = fragment_count;
    const v1::RunSpec spec = TinyRun(tiny);
    MemoryService first(spec), second(spec);
    RunAll(first, 3, 1);
    files_.Crash();
    RunAll(second, 3, 2);
    EXPECT_EQ(first.version(), 3);
    EXPECT_EQ(first.parameters_sha256(), second.parameters_sha256());
  }
}

// How a run exchanges, and at which multiples of actions a test kills.
struct Exchange {
  v1::Codec codec = v1::CODEC_F32;
  bool feedback = false;
  int life_stride = 1;
};

class RestartTest : public RunIslandTest,
                    public testing::WithParamInterface<Exchange> {};

TEST_P(RestartTest, ARestartAtAnyStepGivesTheSameBits) {
  TinyRunOptions tiny = Tiny(1);
  tiny.fragment_count = 2;
  tiny.inner_step_count = 3;
  tiny.round_count = 4;
  v1::RunSpec spec = TinyRun(tiny);
  spec.mutable_exchange()->set_up(GetParam().codec);
  spec.mutable_exchange()->set_error_feedback(GetParam().feedback);
  spec.mutable_exchange()->set_seed(11);
  if (GetParam().feedback) {
    spec.mutable_exchange()->set_error_feedback_decay(0.95);
  }
  MemoryService undisturbed(spec);
  ASSERT_TRUE(RunOne(undisturbed, Options("a")).ok());
  // Actions before the kill.
  for (int life = 3; life < 40; life += GetParam().life_stride) {
    MemoryService service(spec);
    ASSERT_TRUE(RunKilledOnce(service, absl::StrCat("island-", life), life));
    EXPECT_EQ(service.parameters_sha256(), undisturbed.parameters_sha256())
        << "killed after " << life << " actions";
    EXPECT_EQ(service.merged().size(), 8);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Codecs, RestartTest,
    testing::Values(Exchange{v1::CODEC_F32, false, 1},
                    Exchange{v1::CODEC_BF16_STOCHASTIC, false, 7},
                    Exchange{v1::CODEC_INT8, true, 5},
                    Exchange{v1::CODEC_TWO_BIT, true, 7},
                    Exchange{v1::CODEC_TOP_K, true, 2}));

TEST_F(RunIslandTest, AnOlderCoordinatorMakesNoDifference) {
  TinyRunOptions tiny = Tiny(1);
  tiny.inner_step_count = 10;
  tiny.round_count = 4;
  const v1::RunSpec spec = TinyRun(tiny);
  MemoryService newer(spec), older(spec);
  older.SetOld();
  ASSERT_TRUE(RunOne(newer, Options("a")).ok());
  ASSERT_TRUE(RunOne(older, Options("b")).ok());
  EXPECT_EQ(older.parameters_sha256(), newer.parameters_sha256());
  EXPECT_EQ(older.evaluations().size(), newer.evaluations().size());
  EXPECT_EQ(older.phases().size(), newer.phases().size());
  EXPECT_EQ(older.heartbeat().acknowledged_seq(), 0);
  EXPECT_FALSE(older.heartbeat().has_progress());
}

TEST_F(RunIslandTest, PushesAgainAfterErrors) {
  const v1::RunSpec spec = TinyRun(Tiny(1));
  MemoryService undisturbed(spec), service(spec);
  ASSERT_TRUE(RunOne(undisturbed, Options("a")).ok());
  service.FailPushes(3, absl::UnavailableError("away"));
  ASSERT_TRUE(RunOne(service, Options("b")).ok());
  EXPECT_EQ(service.parameters_sha256(), undisturbed.parameters_sha256());
}

TEST_F(RunIslandTest, GoesOnAfterItsLeaseHasEnded) {
  TinyRunOptions tiny = Tiny(1);
  tiny.round_count = 20;
  const v1::RunSpec spec = TinyRun(tiny);
  MemoryService undisturbed(spec), service(spec);
  ASSERT_TRUE(RunOne(undisturbed, Options("a")).ok());
  RunIslandOptions options = Options("b");
  options.on_progress = [&, done = false](const IslandProgress& p) mutable {
    if (p.version == 3 && !done) {
      done = true;
      service.EndLeases();
    }
  };
  ASSERT_TRUE(RunOne(service, options).ok());
  EXPECT_EQ(service.parameters_sha256(), undisturbed.parameters_sha256());
}

// A learning rate with which the first step takes the parameters so far that
// the second is not finite. The run's version 0 is.
TEST_F(RunIslandTest, BeginsAgainFromAFiniteVersionAndThenLeaves) {
  v1::RunSpec spec = TinyRun(Tiny(1));
  spec.mutable_inner()->set_learning_rate(1e30);
  MemoryService service(spec);
  int begin_count = 0;
  RunIslandOptions options = Options("a");
  options.on_progress = [&](const IslandProgress& progress) {
    if (progress.activity == "begin_round") ++begin_count;
  };
  const auto result = RunOne(service, options);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(result.status().message(), HasSubstr("3 times in a row"));
  EXPECT_EQ(begin_count, 3);
  EXPECT_EQ(service.version(), 0) << "nothing is pushed";
  EXPECT_EQ(service.leave_count(), 1);
}

TEST_F(RunIslandTest, LeavesOnTheFirstStop) {
  TinyRunOptions tiny = Tiny(1);
  tiny.round_count = 1000;
  MemoryService service(TinyRun(tiny));
  RunIslandOptions options = Options("a");
  std::stop_source stop;
  options.stop = stop.get_token();
  options.on_progress = [&](const IslandProgress& progress) {
    if (progress.version == 2) stop.request_stop();
  };
  const auto result = RunOne(service, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(service.leave_count(), 1);
  EXPECT_LT(service.version(), 5);
}

TEST_F(RunIslandTest, AStrictIslandThatIsStoppedForARestartStaysAMember) {
  TinyRunOptions tiny = Tiny(1);
  tiny.round_count = 6;
  const v1::RunSpec spec = TinyRun(tiny);
  MemoryService undisturbed(spec), service(spec);
  ASSERT_TRUE(RunOne(undisturbed, Options("a")).ok());
  RunIslandOptions options = Options("b");
  std::stop_source stop, restart;
  options.stop = stop.get_token();
  options.stop_for_restart = restart.get_token();
  options.on_progress = [&](const IslandProgress& progress) {
    if (progress.version < 2) return;
    restart.request_stop();
    stop.request_stop();
  };
  EXPECT_EQ(RunOne(service, options).status().code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(service.leave_count(), 0);
  EXPECT_LT(service.version(), 6);
  ASSERT_TRUE(RunOne(service, Options("b")).ok());
  EXPECT_EQ(service.parameters_sha256(), undisturbed.parameters_sha256());
}

TEST_F(RunIslandTest, AnElasticIslandThatIsStoppedForARestartLeaves) {
  TinyRunOptions tiny = Tiny(1);
  tiny.round_count = 1000;
  v1::RunSpec spec = TinyRun(tiny);
  spec.mutable_schedule()->set_timing(v1::TIMING_ELASTIC);
  MemoryService service(spec);
  RunIslandOptions options = Options("a");
  std::stop_source stop, restart;
  options.stop = stop.get_token();
  options.stop_for_restart = restart.get_token();
  options.on_progress = [&](const IslandProgress& progress) {
    if (progress.version < 2) return;
    restart.request_stop();
    stop.request_stop();
  };
  const auto result = RunOne(service, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(service.leave_count(), 1);
}

TEST_F(RunIslandTest, WaitsForARunThatDoesNotExistYet) {
  MemoryService service(TinyRun(Tiny(1)));
  for (const bool waits : {false, true}) {
    RunIslandOptions options = Options("a");
    if (waits) options.wait_for_run = absl::Minutes(2);
    int call_count = 0;
    const auto get_run = [&]() -> absl::StatusOr<v1::Run> {
      if (++call_count < 3) return absl::NotFoundError("no run \"test\"");
      return service.run();
    };
    const auto result = RunOne(service, options, get_run);
    EXPECT_EQ(result.ok(), waits) << result.status();
    EXPECT_EQ(call_count, waits ? 3 : 1);
    EXPECT_EQ(absl::IsNotFound(result.status()), !waits);
  }
}

TEST_F(RunIslandTest, WaitsForACoordinatorThatIsFullForAMoment) {
  MemoryService service(TinyRun(Tiny(1)));
  for (const bool passes : {false, true}) {
    int call_count = 0;
    const auto get_run = [&]() -> absl::StatusOr<v1::Run> {
      if (++call_count > 1) return service.run();
      return passes ? RefuseForNow(absl::StatusCode::kResourceExhausted,
                                   "QUEUE_FULL", "full", absl::Milliseconds(1))
                    : absl::ResourceExhaustedError("the message is too long");
    };
    const auto result = RunOne(service, Options("a"), get_run);
    EXPECT_EQ(result.ok(), passes) << result.status();
    EXPECT_EQ(call_count, passes ? 2 : 1);
  }
}

TEST_F(RunIslandTest, AnEndedRunSaysWhetherItIsComplete) {
  MemoryService complete(TinyRun(Tiny(1))), cancelled(TinyRun(Tiny(1)));
  ASSERT_TRUE(RunOne(complete, Options("a")).ok());
  cancelled.SetState(v1::RUN_STATE_CANCELLED);
  for (MemoryService* service : {&complete, &cancelled}) {
    const absl::Status status = RunOne(*service, Options("b")).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    const auto reason = GetReason(status);
    ASSERT_TRUE(reason.has_value()) << status;
    EXPECT_EQ(reason->reason,
              service == &complete ? kRunCompleted : kRunCancelled);
  }
}

TEST_F(RunIslandTest, ReportsThePhasesOfEveryRound) {
  const v1::RunSpec rounds = TinyRun(Tiny(1));
  v1::RunSpec async = rounds;
  async.mutable_schedule()->set_timing(v1::TIMING_ELASTIC);
  async.mutable_schedule()->set_max_staleness(4);
  int life = 0;
  for (const v1::RunSpec& spec : {rounds, async}) {
    MemoryService service(spec);
    ASSERT_TRUE(RunOne(service, Options(absl::StrCat("a", ++life))).ok());
    const std::vector<v1::SyncPhases> syncs = service.phases();
    ASSERT_EQ(syncs.size(), 3);
    for (size_t i = 0; i < syncs.size(); ++i) {
      EXPECT_EQ(syncs[i].seq(), i + 1);
      std::vector<int> phases;
      absl::Time end = absl::InfinitePast();
      for (const v1::PhaseTime& time : syncs[i].phases()) {
        phases.push_back(time.phase());
        EXPECT_GE(FromProto(time.start_time()), end);
        end = FromProto(time.start_time()) + FromProto(time.duration());
      }
      std::vector<int> all = {v1::PHASE_TRAIN, v1::PHASE_ENCODE, v1::PHASE_PUSH,
                              v1::PHASE_WAIT, v1::PHASE_APPLY};
      // Nobody trains from the last version.
      if (i + 1 == syncs.size() && phases.size() < all.size()) all.pop_back();
      EXPECT_EQ(phases, all) << syncs[i].DebugString();
    }
  }
}

TEST_F(RunIslandTest, ItsMetricsCountTheRunAndTellWhenItIsReady) {
  MemoryService service(TinyRun(Tiny(1)));
  Metrics metrics;
  RunIslandOptions options = Options("a");
  options.metrics = &metrics;
  bool was_waiting = false, was_ready_at_start = false, was_ready = false;
  options.on_progress = [&](const IslandProgress& progress) {
    const bool ready = metrics.ready().ok();
    was_waiting = was_waiting || !ready;
    was_ready_at_start = was_ready_at_start || (ready && progress.slot < 0);
    was_ready = ready;
  };
  const auto result = RunOne(service, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(was_waiting);
  EXPECT_FALSE(was_ready_at_start);
  EXPECT_TRUE(was_ready);
  double tokens = 0;
  uint64_t push_count = 0;
  for (const prometheus::MetricFamily& family : metrics.Collect()) {
    for (const prometheus::ClientMetric& metric : family.metric) {
      if (family.name == "atoll_trained_tokens_total") {
        tokens += metric.counter.value;
      }
      if (family.name != "atoll_round_duration_seconds") continue;
      for (const auto& label : metric.label) {
        if (label.value == "push") push_count = metric.histogram.sample_count;
      }
    }
  }
  EXPECT_EQ(tokens, static_cast<double>(result->token_count));
  EXPECT_EQ(push_count, 3);
}

TEST_F(RunIslandTest, EndsWhenAnotherProcessJoinsAsTheSameIsland) {
  TinyRunOptions tiny = Tiny(1);
  tiny.round_count = 100000;
  MemoryService service(TinyRun(tiny));
  RunIslandOptions options = Options("a");
  options.on_progress = [&, done = false](const IslandProgress& p) mutable {
    if (p.version == 2 && !done) {
      done = true;
      service.Fence("a");
    }
  };
  EXPECT_EQ(RunOne(service, options).status().code(),
            absl::StatusCode::kAborted);
}

TEST_F(RunIslandTest, WaitsWhileTheRunIsPausedAndEndsWhenItIsCancelled) {
  TinyRunOptions tiny = Tiny(1);
  tiny.round_count = 100000;
  MemoryService service(TinyRun(tiny));
  RunIslandOptions options = Options("a");
  options.on_progress = [&, paused = false](const IslandProgress& p) mutable {
    if (p.version == 2 && !paused) {
      paused = true;
      service.SetState(v1::RUN_STATE_PAUSED);
    }
    if (paused && p.reason == "the run is paused") {
      service.SetState(v1::RUN_STATE_CANCELLED);
    }
  };
  EXPECT_EQ(RunOne(service, options).status().code(),
            absl::StatusCode::kCancelled);
  EXPECT_LT(service.version(), 5);
}

class KeptLog : public LogSink {
 public:
  KeptLog() { SetLogSink(this); }
  ~KeptLog() override { SetLogSink(nullptr); }
  void Send(LogSeverity, absl::string_view, absl::string_view text) override {
    MutexLock lock(&mutex_);
    absl::StrAppend(&texts_, text, "\n");
  }
  std::string texts() const {
    MutexLock lock(&mutex_);
    return texts_;
  }

 private:
  mutable Mutex mutex_;
  std::string texts_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(RunIslandTest, SaysWhichServerIsAwayAndWhatWasNotMerged) {
  TinyRunOptions tiny = Tiny(1);
  tiny.round_count = 8;
  MemoryService service(TinyRun(tiny));
  KeptLog log;
  RunIslandOptions options = Options("a");
  options.on_progress = [&, told = int64_t{0}](
                            const IslandProgress& p) mutable {
    // Away from version 2 on, until the island says so.
    service.SetServerAway(p.version == 2 &&
                          !absl::StrContains(log.texts(), "s0 is away"));
    if (p.reason == "the run is paused") service.SetState(v1::RUN_STATE_ACTIVE);
    if (p.version == told) return;
    told = p.version;
    if (p.version != 4) return;
    service.FailPushes(1, absl::InvalidArgumentError("a value is not finite"));
  };
  ASSERT_TRUE(RunOne(service, options).ok());
  SetLogSink(nullptr);
  const std::string texts = log.texts();
  EXPECT_THAT(texts, HasSubstr("server s0 is away; its shards wait"));
  EXPECT_THAT(texts, HasSubstr("server s0 is back at memory:1\n"));
  EXPECT_THAT(texts, HasSubstr("contribution 5 of fragment 0 is not merged: "
                               "REJECTED, a value is not finite; island a, "));
  EXPECT_THAT(texts, HasSubstr("; merged so far: 4 of 5\n"));
  EXPECT_THAT(texts, Not(HasSubstr("contribution 4 of fragment 0 is not")));
}

TEST_F(RunIslandTest, AFullDiskStopsTheContributionUntilThereIsRoom) {
  const v1::RunSpec spec = TinyRun(Tiny(1));
  MemoryService undisturbed(spec), service(spec);
  ASSERT_TRUE(RunOne(undisturbed, Options("a")).ok());
  files_.SetCapacity(1000);
  RunIslandOptions options = Options("b");
  options.on_progress = [&](const IslandProgress& progress) {
    if (progress.reason == "the last attempt failed") {
      files_.SetCapacity(int64_t{1} << 40);
    }
  };
  ASSERT_TRUE(RunOne(service, options).ok());
  EXPECT_EQ(service.parameters_sha256(), undisturbed.parameters_sha256());
}

// A service whose run has a uid and whose plans have a place in a log.
class NamedCoordinator : public coordinator::IslandControlClient {
 public:
  NamedCoordinator(MemoryService& service, std::string run_uid)
      : inner_(service.MakeCoordinator()), run_uid_(std::move(run_uid)) {}

  absl::StatusOr<v1::JoinResponse> Join(
      const v1::JoinRequest& request) override {
    joins.push_back(request);
    if (other_cluster_count > 0) {
      --other_cluster_count;
      return Refuse(absl::StatusCode::kFailedPrecondition, "OTHER_CLUSTER",
                    "this coordinator is cluster other");
    }
    auto response = inner_->Join(request);
    if (!response.ok()) return response;
    response->mutable_run()->set_run_uid(run_uid_);
    Name(*response->mutable_plan());
    return response;
  }
  absl::StatusOr<v1::IslandPlan> WaitForPlan(
      const coordinator::PlanPosition& after, absl::Duration timeout,
      std::stop_token stop) override {
    auto plan = inner_->WaitForPlan(after, timeout, stop);
    if (plan.ok()) Name(*plan);
    return plan;
  }
  absl::Status ReportReady(int64_t commit_seq) override {
    return inner_->ReportReady(commit_seq);
  }
  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(
      v1::HeartbeatRequest request) override {
    return inner_->Heartbeat(std::move(request));
  }
  absl::Status ReportProgress(v1::ReportProgressRequest progress) override {
    return inner_->ReportProgress(progress);
  }
  absl::Status Leave(v1::LeaveRequest leave) override {
    return inner_->Leave(std::move(leave));
  }

  std::vector<v1::JoinRequest> joins;
  int other_cluster_count = 0;  // Joins that it refuses.

 private:
  void Name(v1::IslandPlan& plan) const {
    plan.set_run_uid(run_uid_);
    plan.mutable_log()->set_cluster_id("cluster");
    plan.mutable_log()->set_start_id("start");
    plan.mutable_log()->set_index(plan.revision());
  }

  const std::unique_ptr<coordinator::IslandControlClient> inner_;
  const std::string run_uid_;
};

class IdentityTest : public RunIslandTest {
 protected:
  // One attempt of island "a" in the run `run_uid` of `service`; stops in the
  // third round if `stops`.
  absl::Status RunNamed(MemoryService& service, const std::string& run_uid,
                        bool stops) {
    return RunNamed(service, run_uid, stops, {});
  }
  // `answers`: of the first GetRuns, from the coordinator of another cluster.
  absl::Status RunNamed(MemoryService& service, const std::string& run_uid,
                        bool stops,
                        std::vector<absl::StatusOr<v1::Run>> answers) {
    std::stop_source stop;
    RunIslandOptions options = Options("a");
    options.stop_at_once = stop.get_token();
    if (stops) {
      options.on_progress = [&](const IslandProgress& progress) {
        if (progress.version >= 2) stop.request_stop();
      };
    }
    NamedCoordinator coordinator(service, run_uid);
    coordinator.other_cluster_count = static_cast<int>(answers.size());
    reasons_.clear();
    if (!stops) {
      options.on_progress = [&](const IslandProgress& progress) {
        reasons_.insert(progress.reason);
      };
    }
    IslandLinks links;
    links.get_run = [&] {
      if (!answers.empty()) {
        const absl::StatusOr<v1::Run> answer = answers.back();
        answers.pop_back();
        return answer;
      }
      v1::Run run = service.run();
      run.set_run_uid(run_uid);
      return absl::StatusOr<v1::Run>(run);
    };
    links.coordinator = &coordinator;
    links.make_parameter_client = [&](const v1::Run& run, const HeldLayout&) {
      EXPECT_EQ(run.run_uid(), run_uid);
      return absl::StatusOr<std::unique_ptr<server::ParameterClient>>(
          service.MakeParameters());
    };
    links.file_system = file_system_;
    const absl::Status status = RunIslandOver(options, links).status();
    joins_ = coordinator.joins;
    return status;
  }

  std::vector<v1::JoinRequest> joins_;
  std::set<std::string> reasons_;  // That were shown.
};

TEST_F(IdentityTest, ARestartTellsTheRunAndTheNewestPlaceThatItHasSeen) {
  MemoryService service(TinyRun(Tiny(1)));
  EXPECT_TRUE(absl::IsCancelled(RunNamed(service, "uid-1", true)));
  ASSERT_EQ(joins_.size(), 1u);
  EXPECT_FALSE(joins_[0].has_log_seen());
  EXPECT_EQ(joins_[0].capabilities().features(), ProgramFeatures());
  EXPECT_TRUE(RunNamed(service, "uid-1", false).ok());
  ASSERT_EQ(joins_.size(), 1u);
  EXPECT_EQ(joins_[0].run_uid(), "uid-1");
  EXPECT_EQ(joins_[0].log_seen().cluster_id(), "cluster");
  EXPECT_EQ(joins_[0].log_seen().start_id(), "start");
  EXPECT_GT(joins_[0].log_seen().index(), 0);
}

TEST_F(IdentityTest, TheStateOfAnotherRunIsRefusedAndKept) {
  MemoryService first(TinyRun(Tiny(1))), second(TinyRun(Tiny(1)));
  EXPECT_TRUE(absl::IsCancelled(RunNamed(first, "uid-1", true)));
  const auto before = files_.List(Options("a").work_directory);
  ASSERT_TRUE(before.ok());
  ASSERT_FALSE(before->empty());
  const absl::Status refused = RunNamed(second, "uid-2", false);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  ASSERT_TRUE(GetReason(refused).has_value()) << refused;
  EXPECT_EQ(GetReason(refused)->reason, "OTHER_RUN");
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("another --dir (work_dir= in Python)"));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("/work-a/test.a*.save"));
  // The coordinator had the log that the island has seen.
  ASSERT_EQ(joins_.size(), 1u);
  EXPECT_EQ(joins_[0].log_seen().cluster_id(), "cluster");
  EXPECT_EQ(joins_[0].capabilities().devices_size(), 0);
  EXPECT_EQ(*files_.List(Options("a").work_directory), *before);
  // Its own run goes on.
  EXPECT_TRUE(RunNamed(first, "uid-1", false).ok());
}

// What a coordinator of another cluster says about the run decides nothing: it
// has none, another one, or one that is complete.
TEST_F(IdentityTest, ARestartWaitsForTheCoordinatorOfItsCluster) {
  MemoryService service(TinyRun(Tiny(1)));
  EXPECT_TRUE(absl::IsCancelled(RunNamed(service, "uid-1", true)));
  v1::Run other = service.run(), complete = service.run();
  other.set_run_uid("uid-2");
  complete.set_run_uid("uid-3");
  complete.set_state(v1::RUN_STATE_COMPLETED);
  const absl::Status status = RunNamed(
      service, "uid-1", false, {absl::NotFoundError("no run"), other, complete});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(joins_.size(), 4u);
  EXPECT_TRUE(reasons_.contains(
      "waits for its coordinator: this coordinator is cluster other"));
}

TEST_F(IdentityTest, ARunThatItsOwnCoordinatorDoesNotHaveEndsIt) {
  MemoryService service(TinyRun(Tiny(1)));
  EXPECT_TRUE(absl::IsCancelled(RunNamed(service, "uid-1", true)));
  IslandLinks links;
  NamedCoordinator coordinator(service, "uid-1");
  links.coordinator = &coordinator;
  links.file_system = file_system_;
  links.get_run = [] { return absl::StatusOr<v1::Run>(absl::NotFoundError("")); };
  EXPECT_TRUE(
      absl::IsNotFound(RunIslandOver(Options("a"), links).status()));
  EXPECT_EQ(coordinator.joins.size(), 1u);
}

TEST_F(RunIslandTest, RefusesARunThatNeedsANewerProgram) {
  MemoryService service(TinyRun(Tiny(1)));
  IslandLinks links;
  links.get_run = [&] {
    v1::Run run = service.run();
    run.mutable_spec()->mutable_outer()->mutable_merge()->set_rule(
        static_cast<v1::MergeRuleKind>(99));
    return absl::StatusOr<v1::Run>(run);
  };
  links.file_system = file_system_;
  const absl::Status refused = RunIslandOver(Options("a"), links).status();
  ASSERT_TRUE(GetReason(refused).has_value()) << refused;
  EXPECT_EQ(GetReason(refused)->reason, "MISSING_FEATURES");
}

TEST_F(RunIslandTest, RefusesDataThatIsNotTheRuns) {
  v1::RunSpec spec = TinyRun(Tiny(1));
  spec.mutable_data()->set_fingerprint(std::string(64, '0'));
  MemoryService service(spec);
  EXPECT_EQ(RunOne(service, Options("a")).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(RunIslandTest, AsksForATrainerOfAnExternalModel) {
  v1::RunSpec spec = TinyRun(Tiny(1));
  EXPECT_TRUE(CheckModelIsKnown("test", spec).ok());
  spec.mutable_model()->set_architecture("external");
  const absl::Status status = CheckModelIsKnown("test", spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "run test trains a model of its own (architecture external): give "
            "--trainer unix:PATH");
}

TEST_F(RunIslandTest, RefusesALayoutThatIsNotTheModels) {
  v1::RunSpec spec = TinyRun(Tiny(1));
  spec.mutable_layout()->mutable_tensors(0)->set_name("other");
  MemoryService service(spec);
  EXPECT_EQ(RunOne(service, Options("a")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(RunIslandTest, IsPausedByItsUserAndThenGoesOnAsAMember) {
  TinyRunOptions tiny = Tiny(1);
  tiny.inner_step_count = 10;
  tiny.round_count = 4;
  MemoryService service(TinyRun(tiny));
  IslandControl control;
  int held_step = -1;
  bool released = false;
  RunIslandOptions options = Options("a");
  options.control = &control;
  options.on_progress = [&](const IslandProgress& at) {
    if (at.step >= 25 && held_step < 0) {
      control.Hold("test");
      held_step = static_cast<int>(at.step);
    }
    const v1::HeartbeatRequest heartbeat = service.heartbeat();
    if (at.reason == "paused by its user: test" && !released &&
        heartbeat.phase() == v1::ISLAND_PHASE_PAUSED) {
      EXPECT_LE(at.step, held_step + 1) << "the action that was chosen before";
      EXPECT_EQ(heartbeat.phase_reason(), "paused by its user");
      EXPECT_GT(heartbeat.plan_revision(), 0);
      // The newest local checkpoint needs the second contribution's outcome.
      EXPECT_EQ(heartbeat.acknowledged_seq(), 1);
      released = true;
      control.Release();
    }
  };
  const auto result = RunOne(service, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(released);
  EXPECT_EQ(service.version(), 4);
  EXPECT_EQ(service.leave_count(), 0);
  EXPECT_EQ(result->contributions.merged_count, 4);
  EXPECT_EQ(result->contributions.merged_tokens, 40 * 4 * 16);
}

TEST_F(RunIslandTest, FinishesItsRoundForItsUserAndLeaves) {
  TinyRunOptions tiny = Tiny(1);
  tiny.inner_step_count = 10;
  tiny.round_count = 4;
  MemoryService service(TinyRun(tiny));
  IslandControl control;
  RunIslandOptions options = Options("a");
  options.control = &control;
  options.on_progress = [&](const IslandProgress& at) {
    if (at.step == 15) control.Finish();
  };
  const auto result = RunOne(service, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->step, 20);
  EXPECT_EQ(service.version(), 2);
  EXPECT_EQ(service.leave_count(), 1);
  EXPECT_EQ(result->contributions.merged_count, 2);
}

}  // namespace
}  // namespace atl::worker
