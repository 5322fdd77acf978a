// Whole islands of streaming runs over a service in memory: the same bits for
// any timing and after any restart, while training goes on.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/io/forwarding_file_system.h"
#include "base/layout/fragment_schedule.h"
#include "base/layout/layout.h"
#include "base/sync/mutex.h"
#include "gtest/gtest.h"
#include "worker/api/run_island.h"
#include "worker/api/testing/island_fixture.h"
#include "worker/island/testing/memory_service.h"
#include "worker/island/testing/tiny_run.h"

namespace atl::worker {
namespace {

class RunStreamingTest : public IslandFixture {
 protected:
  // Two fragments, staggered over five steps, answers applied two steps later.
  v1::RunSpec Streaming(int island_count, double blend, bool eager = false) {
    TinyRunOptions tiny = Tiny(island_count);
    tiny.fragment_count = 2;
    tiny.inner_step_count = 5;
    tiny.round_count = 4;
    v1::RunSpec spec = TinyRun(tiny);
    v1::ScheduleSpec& schedule = *spec.mutable_schedule();
    schedule.set_fragment_schedule(v1::FRAGMENT_SCHEDULE_STAGGERED);
    schedule.set_overlap_step_count(2);
    schedule.set_blend(blend);
    schedule.set_eager(eager);
    return spec;
  }
};

TEST_F(RunStreamingTest, TrainsARunToItsEnd) {
  MemoryService service(Streaming(1, 0));
  const auto result = RunOne(service, Options("a"));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(service.version(), 4);
  EXPECT_EQ(result->step, 20);
  std::vector<int64_t> step_counts;
  for (const v1::ContributionInfo& info : service.merged()) {
    step_counts.push_back(info.step_count());
    EXPECT_EQ(info.data_end() - info.data_begin(), 4 * info.step_count());
  }
  // Fragment 0 after 3 steps, fragment 1 after 5, then both every 5.
  EXPECT_EQ(step_counts, (std::vector<int64_t>{3, 5, 5, 5, 5, 5, 5, 5}));
  EXPECT_FALSE(service.evaluations().empty());
  EXPECT_EQ(service.evaluations().back().version(), 4);
}

TEST_F(RunStreamingTest, ReportsThePhasesOfEverySynchronization) {
  MemoryService service(Streaming(1, 0));
  ASSERT_TRUE(RunOne(service, Options("a")).ok());
  const std::vector<v1::SyncPhases> syncs = service.phases();
  // Two fragments of four versions. Answers of the last are never applied.
  ASSERT_EQ(syncs.size(), 8);
  std::set<int64_t> seqs;
  int applied_count = 0;
  for (const v1::SyncPhases& sync : syncs) {
    seqs.insert(sync.seq());
    std::set<int> phases;
    for (const v1::PhaseTime& time : sync.phases()) {
      phases.insert(time.phase());
    }
    applied_count += static_cast<int>(phases.erase(v1::PHASE_APPLY));
    EXPECT_EQ(phases, (std::set<int>{v1::PHASE_TRAIN, v1::PHASE_ENCODE,
                                     v1::PHASE_PUSH, v1::PHASE_WAIT}))
        << sync.DebugString();
  }
  EXPECT_EQ(seqs.size(), 8);
  EXPECT_GE(applied_count, 6);
}

TEST_F(RunStreamingTest, StrictRunsGiveTheSameBitsForAnyTimingAndThreads) {
  for (const bool eager : {false, true}) {
    const v1::RunSpec spec = Streaming(3, eager ? 0 : 0.5, eager);
    MemoryService first(spec), second(spec);
    RunAll(first, 3, 1);
    files_.Crash();
    RunAll(second, 3, 2);
    EXPECT_EQ(first.version(), 4);
    EXPECT_EQ(first.parameters_sha256(), second.parameters_sha256());
  }
}

TEST_F(RunStreamingTest, ARestartAtAnyStepGivesTheSameBits) {
  // Blended; eager; blended with error feedback.
  for (int kind = 0; kind < 3; ++kind) {
    v1::RunSpec spec = Streaming(1, kind == 1 ? 0 : 0.5, kind == 1);
    if (kind == 2) {
      spec.mutable_exchange()->set_up(v1::CODEC_INT8);
      spec.mutable_exchange()->set_error_feedback(true);
      spec.mutable_exchange()->set_error_feedback_decay(0.95);
    }
    MemoryService undisturbed(spec);
    ASSERT_TRUE(RunOne(undisturbed, Options("a")).ok());
    for (int life = 3; life < 48; life += kind == 0 ? 1 : 3) {
      MemoryService service(spec);
      ASSERT_TRUE(RunKilledOnce(
          service, absl::StrCat("island-", kind, "-", life), life));
      EXPECT_EQ(service.parameters_sha256(), undisturbed.parameters_sha256())
          << "kind " << kind << ", killed after " << life << " actions";
      EXPECT_EQ(service.merged().size(), 8);
    }
  }
}

// At a push that is not saved whole an island writes what it pushed, and what
// it applied since the push before: nothing that grows with the model.
TEST_F(RunStreamingTest, ARecordIsAsLargeAsItsFragments) {
  for (const bool eager : {false, true}) {
    v1::RunSpec spec = Streaming(1, 0, eager);
    std::map<int64_t, int64_t> saved;  // By save_every_syncs.
    for (const int64_t every : {1, 2, 4}) {
      spec.mutable_inner()->set_save_every_syncs(every);
      MemoryService service(spec);
      const auto result =
          RunOne(service, Options(absl::StrCat("island-", eager, "-", every)));
      ASSERT_TRUE(result.ok()) << result.status();
      saved[every] = result->saved_bytes;
      // The default is once a round, which has two pushes.
      if (every != 2) continue;
      spec.mutable_inner()->set_save_every_syncs(0);
      MemoryService by_default(spec);
      const auto again =
          RunOne(by_default, Options(absl::StrCat("default-", eager)));
      EXPECT_NEAR(static_cast<double>(again->saved_bytes),
                  static_cast<double>(saved[every]), 1000);
    }
    const double model =
        4.0 *
        static_cast<double>(RunLayout::Create(spec.layout())->element_count());
    // Of eight pushes: m, v and x, with m and P of an eager run; each with the
    // contributions in flight, half of the model or all of it.
    const double whole = (eager ? 5 : 3) * model;
    EXPECT_GT(saved[1], 8 * (whole + 0.3 * model));
    // A record: the contribution, the answer, and m and P.
    const double record = (eager ? 4 : 2) * 0.7 * model;
    constexpr double kHeaders = 8 * 3000;
    EXPECT_LT(saved[2], 4 * (whole + model + record) + kHeaders);
    EXPECT_LT(saved[4], 2 * (whole + model) + 6 * record + kHeaders);
    EXPECT_LT(saved[4], saved[2]);
  }
}

TEST_F(RunStreamingTest, ARestartRepeatsManyRecords) {
  for (const bool eager : {false, true}) {
    v1::RunSpec spec = Streaming(1, eager ? 0 : 0.5, eager);
    spec.mutable_inner()->set_save_every_syncs(100);
    MemoryService undisturbed(spec);
    ASSERT_TRUE(RunOne(undisturbed, Options(absl::StrCat("a-", eager))).ok());
    for (int life = 5; life < 48; life += 6) {
      MemoryService service(spec);
      ASSERT_TRUE(RunKilledOnce(
          service, absl::StrCat("island-", eager, "-", life), life));
      EXPECT_EQ(service.parameters_sha256(), undisturbed.parameters_sha256())
          << "killed after " << life << " actions";
      EXPECT_EQ(service.merged().size(), 8);
    }
  }
}

TEST_F(RunStreamingTest, BlendOverlapAndForesightEachChangeTheBits) {
  // A control: the comparisons above can fail.
  std::vector<std::string> all;
  v1::RunSpec late = Streaming(1, 0);
  late.mutable_schedule()->set_overlap_step_count(3);
  for (const v1::RunSpec& spec : {Streaming(1, 0), Streaming(1, 0.5),
                                  Streaming(1, 0, true), late}) {
    MemoryService service(spec);
    ASSERT_TRUE(RunOne(service, Options(absl::StrCat("a", all.size()))).ok());
    for (const std::string& other : all) {
      EXPECT_NE(service.parameters_sha256(), other);
    }
    all.push_back(service.parameters_sha256());
  }
}

// G10: an island trains without its link until a step needs the answer.
TEST_F(RunStreamingTest, TrainsOnWhileAPushIsOnItsWay) {
  for (const int64_t overlap : {1, 2, 4}) {
    v1::RunSpec spec = Streaming(1, 0);
    spec.mutable_schedule()->set_overlap_step_count(overlap);
    MemoryService undisturbed(spec), service(spec);
    ASSERT_TRUE(
        RunOne(undisturbed, Options(absl::StrCat("a", overlap))).ok());
    service.HoldPushes(true);
    RunIslandOptions options = Options(absl::StrCat("b", overlap));
    int64_t stopped_at = -1;
    options.on_progress = [&](const IslandProgress& progress) {
      if (stopped_at >= 0 ||
          !absl::StartsWith(progress.reason, "waiting for the commit")) {
        return;
      }
      stopped_at = progress.step;
      service.HoldPushes(false);
    };
    ASSERT_TRUE(RunOne(service, options).ok());
    EXPECT_EQ(stopped_at, PushStep(spec.schedule(), 2, 0, 0) + overlap);
    EXPECT_EQ(service.parameters_sha256(), undisturbed.parameters_sha256());
  }
}

// Blocks renames until it is opened.
class GatedFileSystem : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;

  void Open() {
    MutexLock lock(&mutex_);
    is_open_ = true;
    opened_.SignalAll();
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    {
      MutexLock lock(&mutex_);
      opened_.AwaitWithTimeout(&mutex_, absl::Minutes(2),
                               [this] { return is_open_; });
    }
    return ForwardingFileSystem::Rename(from, to);
  }

 private:
  Mutex mutex_;
  CondVar opened_;
  bool is_open_ ABSL_GUARDED_BY(mutex_) = false;
};

// The saved and pushed contribution is that of the step at which it was taken.
TEST_F(RunStreamingTest, TrainsOnWhileAContributionIsEncodedAndSaved) {
  for (const bool eager : {false, true}) {
    v1::RunSpec spec = Streaming(1, eager ? 0 : 0.5, eager);
    spec.mutable_exchange()->set_up(v1::CODEC_INT8);
    spec.mutable_exchange()->set_error_feedback(true);
    MemoryService undisturbed(spec), service(spec);
    ASSERT_TRUE(RunOne(undisturbed, Options(absl::StrCat("a", eager))).ok());
    GatedFileSystem gate(files_);
    file_system_ = &gate;
    RunIslandOptions options = Options(absl::StrCat("b", eager));
    int64_t stopped_at = -1;
    options.on_progress = [&](const IslandProgress& progress) {
      if (stopped_at >= 0 ||
          progress.reason != "the previous contribution is being saved") {
        return;
      }
      stopped_at = progress.step;
      gate.Open();
    };
    ASSERT_TRUE(RunOne(service, options).ok());
    file_system_ = &files_;
    // The next fragment's push.
    EXPECT_EQ(stopped_at, PushStep(spec.schedule(), 2, 1, 0));
    EXPECT_GT(stopped_at, PushStep(spec.schedule(), 2, 0, 0));
    EXPECT_EQ(service.parameters_sha256(), undisturbed.parameters_sha256());
  }
}

TEST_F(RunStreamingTest, PushesAgainAfterErrors) {
  const v1::RunSpec spec = Streaming(1, 0.5);
  MemoryService undisturbed(spec), service(spec);
  ASSERT_TRUE(RunOne(undisturbed, Options("a")).ok());
  service.FailPushes(3, absl::UnavailableError("away"));
  ASSERT_TRUE(RunOne(service, Options("b")).ok());
  EXPECT_EQ(service.parameters_sha256(), undisturbed.parameters_sha256());
}

TEST_F(RunStreamingTest, GoesOnAfterItsLeaseHasEnded) {
  const v1::RunSpec spec = Streaming(1, 0.5);
  MemoryService undisturbed(spec), service(spec);
  ASSERT_TRUE(RunOne(undisturbed, Options("a")).ok());
  RunIslandOptions options = Options("b");
  options.on_progress = [&, done = false](const IslandProgress& p) mutable {
    if (p.version == 2 && !done) {
      done = true;
      service.EndLeases();
    }
  };
  ASSERT_TRUE(RunOne(service, options).ok());
  EXPECT_EQ(service.parameters_sha256(), undisturbed.parameters_sha256());
}

TEST_F(RunStreamingTest, AFullDiskStopsTheContributionUntilThereIsRoom) {
  for (const bool eager : {false, true}) {
    const v1::RunSpec spec = Streaming(1, 0, eager);
    MemoryService undisturbed(spec), service(spec);
    ASSERT_TRUE(RunOne(undisturbed, Options(absl::StrCat("a", eager))).ok());
    files_.SetCapacity(1000);
    RunIslandOptions options = Options(absl::StrCat("b", eager));
    int waits = 0;  // From the second on because it failed.
    options.on_progress = [&](const IslandProgress& progress) {
      if (progress.reason == "the previous contribution is being saved" &&
          ++waits == 2) {
        files_.SetCapacity(int64_t{1} << 40);
      }
    };
    ASSERT_TRUE(RunOne(service, options).ok());
    EXPECT_GE(waits, 2);
    EXPECT_EQ(service.parameters_sha256(), undisturbed.parameters_sha256());
  }
}

TEST_F(RunStreamingTest, LeavesOnTheFirstStop) {
  v1::RunSpec spec = Streaming(1, 0);
  spec.mutable_schedule()->set_round_count(1000);
  MemoryService service(spec);
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

}  // namespace
}  // namespace atl::worker
