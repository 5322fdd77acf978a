// The island's side of the control connection: joins, heartbeats, plans,
// reports. It never waits for a computation, so a saturated data link or a long
// inner step never costs a lease.
//
// Two threads: one joins, renews the lease and reports; one follows the plan.
//
// To a coordinator with the feature "heartbeats that report" the heartbeat is
// the only regular call: it carries the progress, and its answer says when the
// next one is due. Evaluations, phases of synchronizations, and a hindrance or
// silence that begins or ends do not wait for it: a heartbeat follows at the
// next look, at most once each `report_interval`. A coordinator gets separate
// calls until its answer in this coordinator_epoch has the feature.
// Thread-safe.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "atoll/v1/island_service.pb.h"
#include "base/layout/trainer_metrics.h"
#include "base/obs/latency_histogram.h"
#include "base/obs/log_pace.h"
#include "base/rpc/retry.h"
#include "base/sync/mutex.h"
#include "coordinator/client/island_control_client.h"
#include "coordinator/client/plan_position.h"
#include "worker/island/mailbox.h"

namespace atl::worker {

struct ControlLinkOptions {
  v1::JoinRequest join;
  // The island gives up after this time without an answer: at the first join,
  // and later.
  absl::Duration join_patience = absl::Minutes(5);
  absl::Duration patience = absl::Hours(1);
  // Between two reports of progress, and between two looks at whether a
  // heartbeat may not wait.
  absl::Duration report_interval = absl::Seconds(1);
  // IslandTrainer::silence(); may be empty.
  std::function<absl::Duration()> trainer_silence;
  rpc::RetryPolicy retry;
  uint64_t seed = rpc::RandomSeed();  // For the jitter of retries.
};

// Returns the time from an answered heartbeat to the next one. `asked`:
// HeartbeatResponse.next_interval; 0: not told, and 2 s are taken. `draw` is
// uniform in [0, 1): the interval is drawn from 90 % to 110 % of it, so that
// islands that joined together do not stay together. At most a third of the
// lease; at least 100 ms, if the lease allows that.
absl::Duration HeartbeatInterval(absl::Duration asked, absl::Duration lease,
                                 double draw);

class ControlLink {
 public:
  // Synchronizations whose phases one report carries, and those that may wait.
  static constexpr size_t kReportedPhasesMax = 16;
  static constexpr size_t kPhasesMax = 64;
  // Pieces of unpushed work that one report carries.
  static constexpr int kReportedUnpushedMax = 64;
  // A trainer's shorter silence is not reported.
  static constexpr absl::Duration kSilenceMin = absl::Seconds(5);
  // The longest HeartbeatRequest.phase_reason.
  static constexpr size_t kReasonBytesMax = 256;

  // Called on the plan's thread with every join and plan, before the mailbox
  // gets it: for routes and identities. If it returns an error, the mailbox
  // does not get the join or the plan, and the run is refused with the error.
  struct Listener {
    std::function<absl::Status(const v1::JoinResponse&)> on_joined;
    std::function<absl::Status(const v1::IslandPlan&)> on_plan;
  };

  // Starts. `client` and `mailbox` must outlive it.
  ControlLink(const ControlLinkOptions& options,
              coordinator::IslandControlClient& client, Mailbox& mailbox,
              Listener listener);
  // Stops, without leaving.
  ~ControlLink();
  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;

  // Reports ready once; the loop asks again if it fails.
  absl::Status ReportReady(int64_t commit_seq);
  // Replaces the values of the next report. Evaluations, losses, metrics and
  // phases are not replaced: they add up until they are reported.
  void SetProgress(const v1::ReportProgressRequest& progress);
  void AddLoss(double loss);
  void AddMetrics(const std::map<std::string, double>& metrics,
                  int64_t token_count);
  void AddEvaluation(const v1::Evaluation& evaluation);
  // Told until a report with it is answered.
  void AddUnpushed(const std::vector<v1::UnpushedWork>& work);
  // The work that no answered report has.
  std::vector<v1::UnpushedWork> ListUnpushed() const;
  // The island's work at present, for the next heartbeat; no heartbeat is made
  // for it. While the trainer is silent, the phase is NO_TRAINER.
  void SetPhase(v1::IslandPhase phase, absl::string_view reason);
  // The same by a heartbeat now, because no other follows. Best effort.
  void TellLastPhase(v1::IslandPhase phase, absl::string_view reason);
  // HeartbeatRequest.acknowledged_seq from now on.
  void SetAcknowledged(int64_t seq);
  // Drops losses, metrics and evaluations that are not reported: a restore has
  // made their steps undone. Waits for a report that is under way.
  void ForgetSteps();
  // At most kPhasesMax wait for a report; the oldest are dropped.
  void AddPhases(std::vector<v1::SyncPhases> ended);
  // Reports the rest, for at most `timeout`.
  void Flush(absl::Duration timeout);
  // Best effort.
  absl::Status Leave(const v1::LeaveRequest& leave);

  // Returns the latencies of the heartbeats that were answered.
  LatencyHistogram heartbeat_latency() const;

 private:
  void RunControl(std::stop_token stop);
  void RunPlans(std::stop_token stop);
  bool JoinUntilDone(std::stop_token stop);
  // False: the membership is gone.
  bool KeepMembership(std::stop_token stop);
  // Makes a call of a member, and notes if its answer ends the membership. An
  // answer counts only for the membership in which its question was asked:
  // after another Join it is dropped, with DEADLINE_EXCEEDED.
  template <typename Call>
  auto Ask(Call call) -> decltype(call());
  // Progress that is taken out for one call.
  struct Report {
    v1::ReportProgressRequest message;
    double loss_sum = 0;
    std::vector<v1::SyncPhases> phases;
    WeightedMeans metrics;
  };
  Report TakeReport() ABSL_EXCLUSIVE_LOCKS_REQUIRED(report_mutex_);
  // The call has ended with `status`. If it must be made again, all that adds
  // up waits for the next report.
  void SettleReport(const Report& report, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(report_mutex_);
  absl::Status ReportOnce();
  struct Beat {
    absl::StatusOr<v1::HeartbeatResponse> answer;
    bool has_report = false;
  };
  // Makes a heartbeat. It reports if the coordinator takes reports.
  Beat BeatOnce();
  absl::StatusOr<v1::HeartbeatResponse> CallHeartbeat(
      const v1::HeartbeatRequest& request);
  // An answer of the coordinator of `epoch` has these features.
  void NoteFeatures(uint64_t features, int64_t epoch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True if heartbeats report.
  bool is_reporting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsReporting() const;
  void DropOldPhases() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ReportDue();
  // A report is due that does not wait for the next heartbeat.
  bool PromptDue();
  // The trainer's silence if it is long; else 0.
  absl::Duration Silence() const;
  // Waits; false if stopped.
  bool Sleep(absl::Duration duration, std::stop_token stop);
  // Notes that the coordinator has not accepted this island. `why`: the
  // coordinator's reason; empty if the coordinator cannot be reached.
  void SetAway(absl::string_view why);

  const ControlLinkOptions options_;
  coordinator::IslandControlClient& client_;
  Mailbox& mailbox_;
  const Listener listener_;

  // Held while the listener and then the mailbox get a Join or a plan, so that
  // no older plan follows a Join. Taken before mutex_.
  Mutex listener_mutex_;
  mutable Mutex mutex_;
  CondVar changed_;
  int64_t join_count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool was_member_ ABSL_GUARDED_BY(mutex_) = false;  // Joined once.
  bool member_ ABSL_GUARDED_BY(mutex_) = false;      // As far as is known.
  bool rejoin_ ABSL_GUARDED_BY(mutex_) = false;
  // Position of the newest plan that the mailbox has, also from a Join.
  coordinator::PlanPosition position_ ABSL_GUARDED_BY(mutex_);
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  std::string away_reason_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration lease_ ABSL_GUARDED_BY(mutex_) = absl::Seconds(30);
  absl::Time last_contact_ ABSL_GUARDED_BY(mutex_);
  LatencyHistogram heartbeat_latency_ ABSL_GUARDED_BY(mutex_);
  v1::ReportProgressRequest progress_ ABSL_GUARDED_BY(mutex_);
  double loss_sum_ ABSL_GUARDED_BY(mutex_) = 0;
  WeightedMeans metrics_ ABSL_GUARDED_BY(mutex_);
  bool silence_reported_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<v1::SyncPhases> phases_ ABSL_GUARDED_BY(mutex_);
  bool progress_changed_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_prompt_ ABSL_GUARDED_BY(mutex_) = false;  // It does not wait.
  v1::IslandPhase phase_ ABSL_GUARDED_BY(mutex_) =
      v1::ISLAND_PHASE_UNSPECIFIED;
  std::string phase_reason_ ABSL_GUARDED_BY(mutex_);
  int64_t acknowledged_seq_ ABSL_GUARDED_BY(mutex_) = 0;
  // The newest coordinator_epoch whose coordinator takes reports in heartbeats;
  // not set: the newest answer was without the feature.
  std::optional<int64_t> reporting_epoch_ ABSL_GUARDED_BY(mutex_);
  std::mt19937_64 random_;  // For intervals; the control thread's.
  Mutex report_mutex_;  // One report at a time, so that none adds up twice.
  LogPace refused_pace_ ABSL_GUARDED_BY(report_mutex_);

  std::jthread control_thread_;
  std::jthread plan_thread_;
};

}  // namespace atl::worker
