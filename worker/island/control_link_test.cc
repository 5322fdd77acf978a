#include "worker/island/control_link.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/features/features.h"
#include "base/status/refusal.h"
#include "coordinator/client/testing/fake_island_control_client.h"
#include "gtest/gtest.h"
#include "worker/island/first_join.h"

namespace atl::worker {
namespace {

// Answers the first WaitForPlan with ABORTED, once the test lets it.
class HeldPlanClient : public coordinator::FakeIslandControlClient {
 public:
  absl::StatusOr<v1::IslandPlan> WaitForPlan(
      const coordinator::PlanPosition& after, absl::Duration timeout,
      std::stop_token stop) override {
    if (!hold.exchange(false)) {
      return FakeIslandControlClient::WaitForPlan(after, timeout,
                                                  std::move(stop));
    }
    asked.Notify();
    answer.WaitForNotification();
    return absl::AbortedError("epoch 1 is not the newest, 2");
  }

  std::atomic<bool> hold = false;
  absl::Notification asked, answer;
};

class ControlLinkTest : public testing::Test {
 protected:
  ControlLinkTest() : loop_("run") {
    options_.retry.initial_delay = absl::Milliseconds(1);
    options_.retry.max_delay = absl::Milliseconds(2);
    options_.report_interval = absl::Milliseconds(1);
    v1::JoinResponse response;
    response.set_island_epoch(1);
    response.mutable_lease_duration()->set_nanos(3'000'000);
    response.mutable_plan()->set_revision(1);
    client_.SetJoinResponse(response);
  }

  void Start() {
    link_ = std::make_unique<ControlLink>(
        options_, client_, mailbox_,
        ControlLink::Listener{
            [this](const v1::JoinResponse&) { return join_check_; },
            [this](const v1::IslandPlan&) {
              ++plans_;
              return plan_check_;
            }});
  }
  // Hands news to the loop until `done`.
  void Until(const std::function<bool()>& done) {
    while (!done()) {
      mailbox_.Wait(absl::Milliseconds(1));
      mailbox_.DrainInto(loop_);
    }
  }

  HeldPlanClient client_;
  absl::Status join_check_, plan_check_;  // Before Start().
  std::atomic<int> plans_{0};             // That the listener was given.
  Mailbox mailbox_;
  IslandLoop loop_;
  ControlLinkOptions options_;
  std::unique_ptr<ControlLink> link_;
};

TEST_F(ControlLinkTest, JoinsAndRenewsItsLease) {
  Start();
  Until([&] { return loop_.joined() && client_.heartbeat_count() >= 3; });
  EXPECT_EQ(client_.joins().size(), 1);
}

TEST_F(ControlLinkTest, AFirstJoinGivesThePlaceAndKeepsIt) {
  v1::JoinResponse response;
  response.set_island_epoch(1);
  response.set_slot(2);
  response.set_data_shard(1);
  response.mutable_lease_duration()->set_nanos(3'000'000);
  response.mutable_plan()->set_revision(1);
  client_.SetJoinResponse(response);
  client_.FailNext("Join", absl::UnavailableError("away"));
  FirstJoin first(options_, client_);
  const auto joined = first.Wait({});
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->slot(), 2);
  EXPECT_EQ(joined->data_shard(), 1);
  Until([&] { return client_.heartbeat_count() >= 1; });
  EXPECT_FALSE(client_.left().has_value());
}

TEST_F(ControlLinkTest, AFirstJoinThatIsRefusedOrStoppedIsAnError) {
  client_.FailNext("Join", absl::NotFoundError("no such run"));
  FirstJoin first(options_, client_);
  EXPECT_EQ(first.Wait({}).status().code(), absl::StatusCode::kNotFound);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(FirstJoin(options_, client_).Wait(stop.get_token()).status().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(ControlLinkTest, TriesAgainWhileTheCoordinatorIsAway) {
  for (int i = 0; i < 3; ++i) {
    client_.FailNext("Join", absl::UnavailableError("away"));
  }
  Start();
  Until([&] { return loop_.joined(); });
}

TEST_F(ControlLinkTest, TwoIslandsDrawOtherWaits) {
  EXPECT_NE(ControlLinkOptions().seed, ControlLinkOptions().seed);
}

TEST_F(ControlLinkTest, ReportsTheRestToACoordinatorThatWasFull) {
  // No report comes before the Flush.
  options_.report_interval = absl::Hours(1);
  Start();
  Until([&] { return loop_.joined(); });
  client_.FailNext("ReportProgress",
                   RefuseForNow(absl::StatusCode::kResourceExhausted, "BUSY",
                                "full", absl::Milliseconds(1)));
  link_->AddEvaluation(v1::Evaluation());
  link_->Flush(absl::Minutes(1));
  EXPECT_EQ(client_.progress().size(), 1);
}

TEST_F(ControlLinkTest, GivesUpWhenTheJoinIsRefused) {
  client_.FailNext("Join", absl::NotFoundError("no such run"));
  Start();
  Until([&] { return loop_.Next().kind == ActionKind::kFinish; });
  EXPECT_EQ(loop_.Next().status.code(), absl::StatusCode::kNotFound);
}

TEST_F(ControlLinkTest, GivesUpWhenNobodyAnswers) {
  options_.join_patience = absl::ZeroDuration();
  client_.FailNext("Join", absl::UnavailableError("away"));
  Start();
  Until([&] { return loop_.Next().kind == ActionKind::kFinish; });
  EXPECT_EQ(loop_.Next().status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(ControlLinkTest, JoinsAgainWhenItsLeaseHasEnded) {
  client_.FailNext("Heartbeat", absl::FailedPreconditionError("ended"));
  Start();
  Until([&] { return client_.joins().size() == 2; });
}

TEST_F(ControlLinkTest, JoinsAgainWhenThePlanIsRefused) {
  client_.FailNext("WaitForPlan", absl::FailedPreconditionError("ended"));
  Start();
  Until([&] { return client_.joins().size() == 2; });
}

// The reasons with which a coordinator refuses while its log is not whole.
absl::Status LogBehind() {
  return Refuse(absl::StatusCode::kFailedPrecondition, "LOG_BEHIND",
                "the log ends at 3, and 5 was seen");
}
absl::Status LogDamaged() {
  return Refuse(absl::StatusCode::kDataLoss, "LOG_DAMAGED", "records are gone");
}

absl::Status OtherCluster() {
  return Refuse(absl::StatusCode::kFailedPrecondition, "OTHER_CLUSTER",
                "this is cluster b, not a");
}

TEST_F(ControlLinkTest, WaitsForACoordinatorThatRunsOnAnOlderLog) {
  // Such a coordinator answers, so patience does not end the wait.
  options_.join_patience = absl::ZeroDuration();
  for (int i = 0; i < 3; ++i) {
    client_.FailNext("Join", i == 1 ? LogDamaged() : LogBehind());
  }
  Start();
  Until([&] { return loop_.joined(); });
  EXPECT_EQ(client_.joins().size(), 4);
}

TEST_F(ControlLinkTest, StaysAMemberWhileTheCoordinatorRefusesForItsLog) {
  options_.patience = absl::ZeroDuration();
  client_.FailNext("Heartbeat", LogBehind());
  client_.FailNext("Heartbeat", LogDamaged());
  client_.FailNext("WaitForPlan", LogBehind());
  Start();
  Until([&] { return loop_.joined() && client_.heartbeat_count() >= 1; });
  client_.FailNext("ReportReady", LogBehind());
  EXPECT_FALSE(link_->ReportReady(1).ok());
  v1::IslandPlan plan;
  plan.set_revision(7);
  client_.SetPlan(plan);
  Until([&] { return loop_.plan().revision() == 7; });
  EXPECT_EQ(client_.joins().size(), 1);
  EXPECT_NE(loop_.Next().kind, ActionKind::kFinish);
}

TEST_F(ControlLinkTest, EndsIfWhatTheIslandHasIsOfAnotherRun) {
  client_.FailNext("Join", Refuse(absl::StatusCode::kFailedPrecondition,
                                  "OTHER_RUN", "another run"));
  Start();
  Until([&] { return loop_.Next().kind == ActionKind::kFinish; });
  const auto reason = GetReason(loop_.Next().status);
  ASSERT_TRUE(reason.has_value()) << loop_.Next().status;
  EXPECT_EQ(reason->reason, "OTHER_RUN");
}

TEST_F(ControlLinkTest, WaitsForTheCoordinatorOfItsClusterWithoutAnEnd) {
  options_.join_patience = absl::ZeroDuration();
  options_.patience = absl::ZeroDuration();
  for (int i = 0; i < 3; ++i) client_.FailNext("Join", OtherCluster());
  Start();
  Until([&] { return loop_.joined(); });
  // The same for a member.
  for (int i = 0; i < 3; ++i) client_.FailNext("Join", OtherCluster());
  client_.FailNext("WaitForPlan", OtherCluster());
  Until([&] { return client_.joins().size() == 8; });
  EXPECT_NE(loop_.Next().kind, ActionKind::kFinish);
}

TEST_F(ControlLinkTest, AWaitNamesTheOtherCluster) {
  for (int i = 0; i < 1000; ++i) client_.FailNext("Join", OtherCluster());
  Start();
  Until([&] {
    return loop_.Next().reason.find("this is cluster b") != std::string::npos;
  });
  EXPECT_EQ(loop_.Next().kind, ActionKind::kWait);
}

// A coordinator without the run may be another one. A Join finds out.
TEST_F(ControlLinkTest, ARunThatIsGoneEndsOnlyAJoin) {
  client_.FailNext("Heartbeat", absl::NotFoundError("no run"));
  client_.FailNext("Join", absl::OkStatus());
  client_.FailNext("Join", OtherCluster());
  Start();
  Until([&] { return client_.joins().size() == 3; });
  Until([&] { return loop_.joined(); });
  EXPECT_NE(loop_.Next().kind, ActionKind::kFinish);
}

TEST_F(ControlLinkTest, AHeartbeatAloneProvesNoOtherProcess) {
  client_.FailNext("Heartbeat", absl::AbortedError("epoch"));
  Start();
  Until([&] { return loop_.joined() && client_.heartbeat_count() >= 2; });
  EXPECT_EQ(client_.joins().size(), 1);
  EXPECT_NE(loop_.Next().kind, ActionKind::kFinish);
}

TEST_F(ControlLinkTest, AnAnswerCountsForTheMembershipOfItsQuestion) {
  client_.hold = true;
  Start();
  client_.asked.WaitForNotification();
  // The coordinator forgot the island, which joins again meanwhile.
  client_.FailNext("Heartbeat", absl::FailedPreconditionError("ended"));
  Until([&] { return loop_.joined() && client_.joins().size() == 2; });
  v1::IslandPlan plan;
  plan.set_revision(7);
  client_.SetPlan(plan);
  const int before = client_.heartbeat_count();
  Until([&] { return client_.heartbeat_count() > before; });
  client_.answer.Notify();
  Until([&] {
    return loop_.plan().revision() == 7 ||
           loop_.Next().kind == ActionKind::kFinish;
  });
  EXPECT_EQ(client_.joins().size(), 2);
  EXPECT_NE(loop_.Next().kind, ActionKind::kFinish);
}

TEST_F(ControlLinkTest, EndsWhenAnotherProcessIsTheIsland) {
  client_.FailNext("WaitForPlan", absl::AbortedError("epoch"));
  Start();
  Until([&] { return loop_.Next().kind == ActionKind::kFinish; });
  EXPECT_EQ(loop_.Next().status.code(), absl::StatusCode::kAborted);
}

TEST_F(ControlLinkTest, HandsPlansOn) {
  Start();
  Until([&] { return loop_.joined(); });
  v1::IslandPlan plan;
  plan.set_revision(7);
  client_.SetPlan(plan);
  Until([&] { return loop_.plan().revision() == 7; });
}

TEST_F(ControlLinkTest, HandsNoPlanOnThatIsNotNewerThanTheJoins) {
  v1::IslandPlan plan;
  plan.set_revision(1);
  plan.set_commit_seq(9);
  client_.SetPlan(plan);
  Start();
  Until([&] { return loop_.joined(); });
  EXPECT_EQ(loop_.plan().commit_seq(), 0);
  plan.set_revision(2);
  plan.set_commit_seq(3);
  client_.SetPlan(plan);
  Until([&] { return loop_.plan().revision() == 2; });
  EXPECT_EQ(plans_, 1);
}

TEST_F(ControlLinkTest, WhatDoesNotFitTheRunIsRefusedAndNotHandedOn) {
  join_check_ = absl::InvalidArgumentError("no such fragment");
  Start();
  Until([&] { return loop_.Next().kind == ActionKind::kFinish; });
  EXPECT_FALSE(loop_.joined());
  EXPECT_EQ(loop_.Next().status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ControlLinkTest, APlanThatDoesNotFitTheRunEndsIt) {
  plan_check_ = absl::InvalidArgumentError("no such fragment");
  Start();
  Until([&] { return loop_.joined(); });
  v1::IslandPlan plan;
  plan.set_revision(7);
  client_.SetPlan(plan);
  Until([&] { return loop_.Next().kind == ActionKind::kFinish; });
  EXPECT_EQ(loop_.plan().revision(), 1);
}

TEST_F(ControlLinkTest, ReportsEveryLossAndEvaluationOnce) {
  client_.FailNext("ReportProgress", absl::UnavailableError("away"));
  Start();
  Until([&] { return loop_.joined(); });
  double loss_sum = 0;
  for (int i = 1; i <= 10; ++i) {
    link_->AddLoss(i);
    loss_sum += i;
    v1::ReportProgressRequest progress;
    progress.set_step(i);
    link_->SetProgress(progress);
    v1::Evaluation evaluation;
    evaluation.set_version(i);
    link_->AddEvaluation(evaluation);
  }
  link_->Flush(absl::Minutes(2));
  link_.reset();
  double reported = 0;
  int64_t step_count = 0, evaluation_count = 0;
  const auto reports = client_.progress();
  ASSERT_FALSE(reports.empty());
  for (const v1::ReportProgressRequest& report : reports) {
    reported += report.loss() * static_cast<double>(report.loss_step_count());
    step_count += report.loss_step_count();
    evaluation_count += report.evaluations_size();
  }
  EXPECT_NEAR(reported, loss_sum, 1e-9);
  EXPECT_EQ(step_count, 10);
  EXPECT_EQ(evaluation_count, 10);
  EXPECT_EQ(reports.back().step(), 10);
}

TEST_F(ControlLinkTest, ReportsTheTrainersNumbersOnce) {
  client_.FailNext("ReportProgress", absl::UnavailableError("away"));
  Start();
  Until([&] { return loop_.joined(); });
  double sum = 0;
  for (int i = 1; i <= 10; ++i) {
    link_->AddMetrics({{"accuracy", i}}, 3);
    sum += 3.0 * i;
    link_->SetProgress({});
    if (i == 5) Until([&] { return !client_.progress().empty(); });
  }
  link_->Flush(absl::Minutes(2));
  link_.reset();
  double reported = 0;
  int64_t token_count = 0;
  for (const v1::ReportProgressRequest& report : client_.progress()) {
    token_count += report.metrics_token_count();
    const auto found = report.metrics().find("accuracy");
    if (found == report.metrics().end()) continue;
    reported +=
        found->second * static_cast<double>(report.metrics_token_count());
  }
  EXPECT_NEAR(reported, sum, 1e-9);
  EXPECT_EQ(token_count, 30);
}

TEST_F(ControlLinkTest, ReportsATrainersSilenceAndItsEnd) {
  std::atomic<int> seconds = 2;
  options_.trainer_silence = [&] { return absl::Seconds(seconds.load()); };
  Start();
  Until([&] { return loop_.joined(); });
  link_->SetProgress({});
  const auto last = [&] {
    const auto reports = client_.progress();
    return reports.empty() ? -1 : reports.back().trainer_silence_seconds();
  };
  // Short silences are none.
  Until([&] { return last() == 0; });
  seconds = 40;
  Until([&] { return last() == 40; });
  seconds = 0;
  Until([&] { return last() == 0; });
}

std::vector<v1::SyncPhases> Synchronizations(int64_t begin, int64_t end) {
  std::vector<v1::SyncPhases> syncs;
  for (int64_t seq = begin; seq < end; ++seq) {
    syncs.emplace_back().set_seq(seq);
  }
  return syncs;
}

TEST_F(ControlLinkTest, ReportsThePhasesOfEachSynchronizationOnce) {
  client_.FailNext("ReportProgress", absl::UnavailableError("away"));
  client_.FailNext("ReportProgress", absl::FailedPreconditionError("ended"));
  Start();
  Until([&] { return loop_.joined(); });
  link_->AddPhases(Synchronizations(1, 21));
  Until([&] { return !client_.progress().empty(); });
  link_->AddPhases(Synchronizations(21, 41));
  link_->Flush(absl::Minutes(2));
  link_.reset();
  std::vector<int64_t> seqs;
  for (const v1::ReportProgressRequest& report : client_.progress()) {
    EXPECT_LE(report.sync_phases_size(), 16);
    for (const v1::SyncPhases& sync : report.sync_phases()) {
      seqs.push_back(sync.seq());
    }
  }
  ASSERT_EQ(seqs.size(), 40);
  for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(seqs[i], i + 1);
}

TEST_F(ControlLinkTest, PhasesThatWaitForAReportAreBounded) {
  // Never joins, so it reports only when it is flushed.
  client_.FailNext("Join", absl::NotFoundError("no such run"));
  Start();
  Until([&] { return loop_.Next().kind == ActionKind::kFinish; });
  link_->AddPhases(Synchronizations(0, 1000));
  link_->Flush(absl::Minutes(2));
  int64_t count = 0;
  for (const v1::ReportProgressRequest& report : client_.progress()) {
    count += report.sync_phases_size();
  }
  EXPECT_EQ(count, ControlLink::kPhasesMax);
  EXPECT_EQ(client_.progress().back().sync_phases().rbegin()->seq(), 999);
}

TEST(HeartbeatIntervalTest, FollowsTheCoordinatorWithJitter) {
  const absl::Duration lease = absl::Seconds(60);
  const absl::Duration asked = absl::Seconds(10);
  EXPECT_EQ(HeartbeatInterval(asked, lease, 0), absl::Seconds(9));
  EXPECT_EQ(HeartbeatInterval(asked, lease, 0.5), absl::Seconds(10));
  EXPECT_LT(HeartbeatInterval(asked, lease, 0.999), absl::Seconds(11));
  // An older coordinator does not tell.
  EXPECT_EQ(HeartbeatInterval(absl::ZeroDuration(), lease, 0.5),
            absl::Seconds(2));
}

TEST(HeartbeatIntervalTest, IsNeverBeyondAThirdOfTheLeaseNorABusyLoop) {
  for (const absl::Duration asked :
       {-absl::InfiniteDuration(), -absl::Seconds(1), absl::Nanoseconds(1),
        absl::Seconds(10), absl::Hours(1), absl::InfiniteDuration()}) {
    for (const double draw : {0.0, 0.5, 0.999}) {
      for (const absl::Duration lease :
           {absl::Milliseconds(3), absl::Seconds(30), absl::Hours(10)}) {
        const absl::Duration interval = HeartbeatInterval(asked, lease, draw);
        EXPECT_LE(interval, lease / 3);
        EXPECT_GE(interval, std::min(absl::Milliseconds(90), lease / 3));
      }
    }
  }
}

// A coordinator whose heartbeats take reports.
class ReportingLinkTest : public ControlLinkTest {
 protected:
  ReportingLinkTest() {
    JoinWith(kReportingHeartbeat, 1);
    // No regular heartbeat follows the first one while a test runs.
    client_.SetHeartbeatAnswer(kReportingHeartbeat, 1, absl::Hours(1));
  }

  void JoinWith(uint64_t features, int64_t epoch) {
    v1::JoinResponse response;
    response.set_island_epoch(1);
    response.mutable_lease_duration()->set_seconds(3600);
    response.mutable_plan()->set_coordinator_epoch(epoch);
    response.mutable_plan()->set_revision(1);
    response.set_coordinator_features(features);
    client_.SetJoinResponse(response);
  }
  void JoinAndBeat() {
    Start();
    Until([&] { return loop_.joined() && client_.heartbeat_count() >= 1; });
  }
  void AddLossAndEvaluation(int i) {
    link_->AddLoss(i);
    v1::Evaluation evaluation;
    evaluation.set_version(i);
    link_->AddEvaluation(evaluation);
  }
  // Of all reports of either kind: the sum of losses, and the evaluations.
  std::pair<double, int> Reported() const {
    std::vector<v1::ReportProgressRequest> reports = client_.progress();
    for (const v1::HeartbeatRequest& beat : client_.heartbeats()) {
      if (beat.has_progress()) reports.push_back(beat.progress());
    }
    double loss_sum = 0;
    int evaluation_count = 0;
    for (const v1::ReportProgressRequest& report : reports) {
      loss_sum += report.loss() * static_cast<double>(report.loss_step_count());
      evaluation_count += report.evaluations_size();
    }
    return {loss_sum, evaluation_count};
  }
};

TEST_F(ReportingLinkTest, AnEvaluationDoesNotWaitForTheNextHeartbeat) {
  JoinAndBeat();
  AddLossAndEvaluation(3);
  Until([&] { return Reported().second == 1; });
  AddLossAndEvaluation(4);
  Until([&] { return Reported().second == 2; });
  EXPECT_EQ(Reported().first, 7);
  EXPECT_TRUE(client_.progress().empty());
}

TEST_F(ReportingLinkTest, NorDoPhasesAHindranceASilenceAndTheirEnds) {
  std::atomic<int> seconds = 0;
  options_.trainer_silence = [&] { return absl::Seconds(seconds.load()); };
  JoinAndBeat();
  const auto last = [&] {
    v1::ReportProgressRequest report;
    for (const v1::HeartbeatRequest& beat : client_.heartbeats()) {
      if (beat.has_progress()) report = beat.progress();
    }
    return report;
  };
  link_->AddPhases({v1::SyncPhases()});
  Until([&] { return last().sync_phases_size() == 1; });
  v1::ReportProgressRequest progress;
  progress.set_hindrance("waits for data");
  link_->SetProgress(progress);
  Until([&] { return last().hindrance() == "waits for data"; });
  seconds = 40;
  Until([&] { return last().trainer_silence_seconds() == 40; });
  const v1::HeartbeatRequest silent = client_.heartbeats().back();
  EXPECT_EQ(silent.phase(), v1::ISLAND_PHASE_NO_TRAINER);
  EXPECT_NE(silent.phase_reason().find("40 s"), std::string::npos);
  seconds = 0;
  Until([&] { return last().trainer_silence_seconds() == 0; });
  link_->SetProgress({});
  Until([&] { return last().hindrance().empty(); });
  EXPECT_TRUE(client_.progress().empty());
}

TEST_F(ReportingLinkTest, OtherProgressWaitsForTheNextHeartbeat) {
  JoinAndBeat();
  v1::ReportProgressRequest progress;
  progress.set_step(3);
  link_->SetProgress(progress);
  link_->AddLoss(2);
  link_->SetPhase(v1::ISLAND_PHASE_TRAIN, "");
  AddLossAndEvaluation(1);
  Until([&] { return Reported().second == 1; });
  // One heartbeat brings all.
  EXPECT_EQ(client_.heartbeat_count(), 2);
  EXPECT_EQ(client_.heartbeats().back().progress().step(), 3);
  EXPECT_EQ(Reported().first, 3);
}

TEST_F(ReportingLinkTest, UnpushedWorkIsListedUntilItIsTold) {
  std::vector<v1::UnpushedWork> work(70);
  for (int i = 0; i < 70; ++i) work[i].set_number(i + 1);
  JoinAndBeat();
  link_->AddUnpushed(work);
  EXPECT_EQ(link_->ListUnpushed().size(), 70);
  link_->Flush(absl::Minutes(2));
  EXPECT_TRUE(link_->ListUnpushed().empty());
  int64_t number = 0;
  for (const v1::ReportProgressRequest& report : client_.progress()) {
    EXPECT_LE(report.unpushed_size(), 64);
    for (const v1::UnpushedWork& told : report.unpushed()) {
      EXPECT_EQ(told.number(), ++number);
    }
  }
  EXPECT_EQ(number, 70);
}

TEST_F(ReportingLinkTest, TheLastPhaseWaitsForNoHeartbeat) {
  JoinAndBeat();
  link_->TellLastPhase(v1::ISLAND_PHASE_NO_TRAINER, "its trainer has ended");
  EXPECT_EQ(client_.heartbeat_count(), 2);
  EXPECT_EQ(client_.heartbeats().back().phase(), v1::ISLAND_PHASE_NO_TRAINER);
  EXPECT_EQ(client_.heartbeats().back().phase_reason(),
            "its trainer has ended");
}

TEST_F(ReportingLinkTest, TellsThePhaseThePlanAndWhatItNoLongerNeeds) {
  JoinAndBeat();
  v1::IslandPlan plan;
  plan.set_coordinator_epoch(1);
  plan.set_revision(7);
  client_.SetPlan(plan);
  Until([&] { return loop_.plan().revision() == 7; });
  link_->SetPhase(v1::ISLAND_PHASE_DATA, std::string(1000, 'x'));
  link_->SetAcknowledged(5);
  AddLossAndEvaluation(1);
  Until([&] { return Reported().second == 1; });
  const v1::HeartbeatRequest beat = client_.heartbeats().back();
  EXPECT_EQ(beat.phase(), v1::ISLAND_PHASE_DATA);
  EXPECT_EQ(beat.phase_reason(), std::string(256, 'x'));
  EXPECT_EQ(beat.plan_revision(), 7);
  EXPECT_EQ(beat.acknowledged_seq(), 5);
}

TEST_F(ReportingLinkTest, AnOlderCoordinatorGetsSeparateCalls) {
  JoinWith(/*features=*/0, 1);
  client_.SetHeartbeatAnswer(/*features=*/0, 0, absl::Milliseconds(100));
  JoinAndBeat();
  link_->SetPhase(v1::ISLAND_PHASE_TRAIN, "the round's next step");
  link_->SetAcknowledged(5);
  AddLossAndEvaluation(3);
  Until([&] { return Reported().second == 1; });
  const int count = client_.heartbeat_count();
  Until([&] { return client_.heartbeat_count() > count; });
  EXPECT_EQ(client_.progress().size(), 1);
  for (const v1::HeartbeatRequest& beat : client_.heartbeats()) {
    EXPECT_EQ(beat.ByteSizeLong(), 0);
  }
}

TEST_F(ReportingLinkTest, ALaterEpochMustShowTheFeatureAgain) {
  JoinAndBeat();
  // An older program starts in the coordinator's place.
  v1::IslandPlan plan;
  plan.set_coordinator_epoch(2);
  client_.SetPlan(plan);
  Until([&] { return loop_.plan().coordinator_epoch() == 2; });
  AddLossAndEvaluation(1);
  Until([&] { return client_.progress().size() == 1; });
  EXPECT_EQ(Reported().second, 1);
}

TEST_F(ReportingLinkTest, ReportsInHeartbeatsOnceAnAnswerHasTheFeature) {
  // The Join's answer is of the epoch before.
  JoinWith(kReportingHeartbeat, 0);
  v1::IslandPlan plan;
  plan.set_coordinator_epoch(1);
  JoinAndBeat();
  client_.SetPlan(plan);
  Until([&] { return loop_.plan().coordinator_epoch() == 1; });
  AddLossAndEvaluation(1);
  Until([&] { return Reported().second == 1; });
  EXPECT_TRUE(client_.progress().empty());
}

TEST_F(ReportingLinkTest, WhatAnOlderCoordinatorHasNotReadIsToldAgain) {
  JoinAndBeat();
  // No plan has told of the restart yet.
  client_.SetHeartbeatAnswer(/*features=*/0, 0);
  AddLossAndEvaluation(3);
  Until([&] { return client_.progress().size() == 1; });
  EXPECT_EQ(client_.progress()[0].loss(), 3);
  EXPECT_EQ(client_.progress()[0].evaluations_size(), 1);
}

TEST_F(ReportingLinkTest, AReportThatIsNotValidIsDroppedAndTheLeaseGoesOn) {
  JoinAndBeat();
  client_.FailNext("Heartbeat", absl::InvalidArgumentError("step is negative"));
  AddLossAndEvaluation(3);
  Until([&] { return client_.heartbeat_count() == 2; });
  EXPECT_FALSE(client_.heartbeats().back().has_progress());
  AddLossAndEvaluation(4);
  Until([&] { return Reported().second == 1; });
  EXPECT_EQ(Reported().first, 4);
  EXPECT_TRUE(loop_.connected());
}

TEST_F(ReportingLinkTest, AReportThatCameTooSoonIsToldAgain) {
  // A link that is not connected would give up.
  options_.patience = absl::ZeroDuration();
  JoinAndBeat();
  for (int i = 0; i < 2; ++i) {
    client_.FailNext("Heartbeat",
                     RefuseForNow(absl::StatusCode::kResourceExhausted,
                                  "TOO_MANY_CALLS", "too many reports",
                                  absl::Milliseconds(1)));
  }
  AddLossAndEvaluation(3);
  Until([&] { return Reported().second == 1; });
  EXPECT_EQ(Reported().first, 3);
  EXPECT_TRUE(loop_.connected());
  EXPECT_NE(loop_.Next().kind, ActionKind::kFinish);
}

TEST_F(ReportingLinkTest, ReportsTheRestBeforeItLeaves) {
  // No look comes.
  options_.report_interval = absl::Hours(1);
  JoinAndBeat();
  AddLossAndEvaluation(3);
  link_->Flush(absl::Minutes(1));
  EXPECT_EQ(Reported().second, 1);
}

TEST_F(ControlLinkTest, Leaves) {
  Start();
  Until([&] { return loop_.joined(); });
  v1::LeaveRequest leave;
  leave.set_reason("done");
  EXPECT_TRUE(link_->Leave(leave).ok());
  ASSERT_TRUE(client_.left().has_value());
  EXPECT_EQ(client_.left()->reason(), "done");
}

}  // namespace
}  // namespace atl::worker
