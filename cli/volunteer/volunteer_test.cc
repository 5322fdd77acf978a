#include "cli/volunteer/volunteer.h"

#include <unistd.h>

#include <filesystem>
#include <future>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status/refusal.h"
#include "cli/interrupt.h"
#include "cli/output/error.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

v1::RunSpec Spec(v1::Timing timing) {
  v1::RunSpec spec;
  spec.mutable_schedule()->set_timing(timing);
  return spec;
}

// Time goes on by five minutes at each look at the clock.
class VolunteerTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.run_id = "spring";
    options_.island_id = "kitchen";
    options_.directory = absl::StrCat(testing::TempDir(), "/vol_", ::getpid());
    std::filesystem::remove_all(options_.directory);
    options_.zone = absl::UTCTimeZone();
    options_.hold_max = absl::Minutes(10);
    options_.look_period = absl::Milliseconds(1);
    options_.now = [this] {
      return absl::FromCivil(absl::CivilHour(2026, 1, 5, 12),
                             absl::UTCTimeZone()) +
             absl::Minutes(5) * look_count_++;
    };
  }
  void TearDown() override { std::filesystem::remove_all(options_.directory); }

  absl::StatusOr<worker::IslandProgress> Run(
      const Volunteer::Attempt& attempt) {
    volunteer_ = Volunteer::Create(options_).value();
    return volunteer_->Run(island_, [&](const worker::RunIslandOptions& once) {
      ++attempt_count_;
      return attempt(once);
    });
  }
  Json Ask(const Json& request) { return volunteer_->Handle(request).value(); }

  VolunteerOptions options_;
  worker::RunIslandOptions island_;
  std::unique_ptr<Volunteer> volunteer_;
  std::atomic<int64_t> look_count_ = 0;
  int attempt_count_ = 0;
};

TEST_F(VolunteerTest, TrainsInItsHoursAndLeavesOutsideOfThem) {
  options_.limits.hours_text = "22:00-07:00";
  options_.limits.hours = ParseHours("22:00-07:00").value();
  std::vector<std::string> holds;
  const auto end = Run([&](const worker::RunIslandOptions& once)
                           -> absl::StatusOr<worker::IslandProgress> {
    const absl::Status refused = once.check_run(Spec(v1::TIMING_ELASTIC));
    if (!refused.ok()) return refused;
    worker::IslandProgress at;
    at.token_count = 100;
    at.sent_bytes = 7;
    at.contributions.merged_count = 2;
    once.on_progress(at);
    if (attempt_count_ < 3) {
      WaitForStop(once.stop);
      holds.push_back(once.control->Get().hold);
    }
    return at;
  });
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(attempt_count_, 3) << "at noon it only reads the run";
  EXPECT_EQ(holds, std::vector<std::string>{
                       "outside of --hours 22:00-07:00, until 22:00"});
  EXPECT_EQ(end->token_count, 200);
  EXPECT_EQ(end->sent_bytes, 14);
  EXPECT_EQ(end->contributions.merged_count, 4);
}

TEST_F(VolunteerTest, AStrictRunRefusesHours) {
  options_.limits.hours = ParseHours("22:00-07:00").value();
  const auto end = Run([&](const worker::RunIslandOptions& once)
                           -> absl::StatusOr<worker::IslandProgress> {
    return once.check_run(Spec(v1::TIMING_STRICT));
  });
  EXPECT_EQ(GetReason(end.status()), "STRICT_RUN");
}

TEST_F(VolunteerTest, AStrictRunBoundsAPauseByItsLease) {
  v1::RunSpec spec = Spec(v1::TIMING_STRICT);
  // 1000 looks at the clock.
  spec.mutable_schedule()->mutable_lease_duration()->set_seconds(300'000);
  const auto end = Run([&](const worker::RunIslandOptions& once)
                           -> absl::StatusOr<worker::IslandProgress> {
    EXPECT_TRUE(once.check_run(spec).ok());
    if (attempt_count_ == 2) return worker::IslandProgress();
    EXPECT_EQ(Ask({{"command", "status"}})["state"], "starting");
    const Json paused = Ask({{"command", "pause"}, {"seconds", 600'000}});
    EXPECT_EQ(paused["state"], "paused");
    EXPECT_EQ(paused["reason"],
              "atoll local pause; the round waits for this island, for "
              "83h20m at most");
    EXPECT_FALSE(once.stop.stop_requested());
    WaitForStop(once.stop);
    EXPECT_GE(look_count_, 1000);
    return worker::IslandProgress();
  });
  EXPECT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(attempt_count_, 2) << "it joins again after the pause";
  EXPECT_GE(look_count_, 2000);
}

TEST_F(VolunteerTest, AResumedPauseKeepsTheMembershipOfAStrictRun) {
  v1::RunSpec spec = Spec(v1::TIMING_STRICT);
  spec.mutable_schedule()->mutable_lease_duration()->set_seconds(3'000'000'000);
  const auto end = Run([&](const worker::RunIslandOptions& once)
                           -> absl::StatusOr<worker::IslandProgress> {
    EXPECT_TRUE(once.check_run(spec).ok());
    Ask({{"command", "pause"}});
    EXPECT_EQ(once.control->Get().hold, "atoll local pause");
    Ask({{"command", "resume"}});
    EXPECT_EQ(once.control->Get().hold, "");
    EXPECT_FALSE(once.stop.stop_requested());
    return worker::IslandProgress();
  });
  EXPECT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(attempt_count_, 1);
}

TEST_F(VolunteerTest, AnIslandThatCannotLeaveAStrictRunDoesNotPause) {
  options_.hold_max = absl::InfiniteDuration();
  const auto end = Run([&](const worker::RunIslandOptions& once)
                           -> absl::StatusOr<worker::IslandProgress> {
    // The run is not known yet.
    EXPECT_EQ(Ask({{"command", "pause"}})["state"], "paused");
    EXPECT_TRUE(once.check_run(Spec(v1::TIMING_STRICT)).ok());
    volunteer_->Look();
    EXPECT_EQ(once.control->Get().hold, "");
    EXPECT_EQ(GetReason(volunteer_->Handle({{"command", "pause"}}).status()),
              "STRICT_RUN");
    return worker::IslandProgress();
  });
  EXPECT_TRUE(end.ok()) << end.status();
}

TEST_F(VolunteerTest, APauseForAWhileLeavesAndJoinsAgain) {
  const auto end = Run([&](const worker::RunIslandOptions& once)
                           -> absl::StatusOr<worker::IslandProgress> {
    EXPECT_TRUE(once.check_run(Spec(v1::TIMING_ELASTIC)).ok());
    if (attempt_count_ == 1) {
      EXPECT_NE(Ask({{"command", "pause"}, {"seconds", 36000}})["until"],
                nullptr);
      WaitForStop(once.stop);
      // As an island that waits for its gate or its data.
      return absl::CancelledError("stopped before the join");
    }
    return worker::IslandProgress();
  });
  EXPECT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(attempt_count_, 2);
  EXPECT_FALSE(volunteer_->finishing());
}

TEST_F(VolunteerTest, AFinishEndsAnIslandThatHasLeftToPause) {
  std::promise<void> left;
  absl::StatusOr<worker::IslandProgress> end;
  std::thread thread([&] {
    end = Run([&](const worker::RunIslandOptions& once)
                  -> absl::StatusOr<worker::IslandProgress> {
      EXPECT_TRUE(once.check_run(Spec(v1::TIMING_ELASTIC)).ok());
      Ask({{"command", "pause"}});
      WaitForStop(once.stop);
      left.set_value();
      return worker::IslandProgress();
    });
  });
  left.get_future().wait();
  EXPECT_EQ(Ask({{"command", "finish"}})["state"], "finishing");
  EXPECT_FALSE(volunteer_->Handle({{"command", "pause"}}).ok());
  thread.join();
  EXPECT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(attempt_count_, 1);
  EXPECT_TRUE(volunteer_->finishing());
}

TEST_F(VolunteerTest, AFinishIsGivenToTheRunningIsland) {
  const auto end = Run([&](const worker::RunIslandOptions& once)
                           -> absl::StatusOr<worker::IslandProgress> {
    EXPECT_TRUE(once.check_run(Spec(v1::TIMING_ELASTIC)).ok());
    Ask({{"command", "pause"}});
    volunteer_->Look();
    Ask({{"command", "finish"}});
    // Both at once: on hold, a round in progress would be given up.
    EXPECT_TRUE(once.control->Get().finish);
    EXPECT_EQ(once.control->Get().hold, "");
    return worker::IslandProgress();
  });
  EXPECT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(attempt_count_, 1);
}

TEST_F(VolunteerTest, AFinishEndsAnIslandThatReachesNobody) {
  const auto end = Run([&](const worker::RunIslandOptions& once)
                           -> absl::StatusOr<worker::IslandProgress> {
    EXPECT_FALSE(once.stop.stop_requested());
    Ask({{"command", "finish"}});
    EXPECT_TRUE(once.stop.stop_requested());
    return absl::CancelledError("stopped before the run could be read");
  });
  EXPECT_TRUE(end.ok()) << end.status();
}

TEST_F(VolunteerTest, AnEnrolledIslandIsNeverEndedByAnUnreachableNetwork) {
  const auto attempt = [&](const worker::RunIslandOptions& once)
      -> absl::StatusOr<worker::IslandProgress> {
    if (attempt_count_ == 1) {
      return RefuseForNow(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                          "full", absl::ZeroDuration());
    }
    if (attempt_count_ < 4) return absl::UnavailableError("no route");
    EXPECT_EQ(Ask({{"command", "status"}})["reason"], "no route");
    EXPECT_TRUE(once.check_run(Spec(v1::TIMING_STRICT)).ok());
    EXPECT_EQ(Ask({{"command", "status"}})["state"], "starting");
    return worker::IslandProgress();
  };
  options_.retries = true;
  EXPECT_TRUE(Run(attempt).ok());
  EXPECT_EQ(attempt_count_, 4);
  attempt_count_ = 0;
  options_.retries = false;
  EXPECT_TRUE(absl::IsResourceExhausted(Run(attempt).status()));
}

TEST_F(VolunteerTest, AtTheDaysTransferItLeavesUntilMidnight) {
  options_.limits.daily_transfer_bytes = 1000;
  std::vector<std::string> holds;
  const auto end = Run([&](const worker::RunIslandOptions& once)
                           -> absl::StatusOr<worker::IslandProgress> {
    EXPECT_TRUE(once.check_run(Spec(v1::TIMING_ELASTIC)).ok());
    if (attempt_count_ == 2) return worker::IslandProgress();
    worker::IslandProgress at;
    at.sent_bytes = 300;
    at.received_bytes = 299;
    once.on_progress(at);
    volunteer_->CountBytes(400);
    volunteer_->Look();
    EXPECT_EQ(once.control->Get().hold, "");
    at.sent_bytes = 301;
    once.on_progress(at);
    WaitForStop(once.stop);
    holds.push_back(once.control->Get().hold);
    EXPECT_EQ(Ask({{"command", "status"}})["day_bytes"], 1000);
    return at;
  });
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(attempt_count_, 2);
  EXPECT_EQ(holds,
            std::vector<std::string>{"--daily-transfer: the day's 1.0 kB are "
                                     "used, until 00:00"});
  const auto account = TransferAccount::Open(options_.directory, options_.zone);
  EXPECT_EQ(account->byte_count(), 0) << "of the next day";
}

TEST_F(VolunteerTest, AnUnknownCommandIsRefused) {
  volunteer_ = Volunteer::Create(options_).value();
  EXPECT_FALSE(volunteer_->Handle({{"command", "dance"}}).ok());
  EXPECT_FALSE(volunteer_->Handle({{"command", 7}}).ok());
  EXPECT_FALSE(volunteer_->Handle(Json::object()).ok());
}

}  // namespace
}  // namespace atl::cli
