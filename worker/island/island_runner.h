// Executes the actions of IslandLoop. The caller's thread trains. A streaming
// run has three more threads: push, pull, and one that encodes and saves. In an
// island of several processes, process 0 runs it and leads the others
// (island_member.h).
//
// Thread-compatible, except OnJoined and OnPlan, which the control link calls.

#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/sync/mutex.h"
#include "coordinator/client/log_seen.h"
#include "worker/core/island_loop.h"
#include "worker/island/control_link.h"
#include "worker/island/first_join.h"
#include "worker/island/island_metrics.h"
#include "worker/island/island_part.h"
#include "worker/island/mailbox.h"
#include "worker/island/meter/contribution_tally.h"
#include "worker/island/meter/island_meter.h"
#include "worker/island/meter/phase_meter.h"
#include "worker/island/meter/step_speed.h"
#include "worker/island/options.h"
#include "worker/save/save_file.h"

namespace atl::worker {

class IslandRunner {
 public:
  // Reads the run, opens the data, creates the trainer. Errors as RunIsland.
  static absl::StatusOr<std::unique_ptr<IslandRunner>> Create(
      const RunIslandOptions& options, const IslandLinks& links);

  ~IslandRunner();

  // Joins the run and works until its end. Errors as RunIsland.
  absl::StatusOr<IslandProgress> Run();

 private:
  IslandRunner(const RunIslandOptions& options, const IslandLinks& links)
      : options_(options), links_(links), loop_(options.run_id) {
    links_.data_came = [this] { mailbox_.PutDataCame(); };
    links_.join_first = [this] { return JoinFirst(); };
  }

  absl::StatusOr<v1::Run> ReadRun();
  absl::Status ReadNewestSave();
  // OK, unless the coordinator may lack the log that this island has seen. Its
  // answers then decide nothing, and the island asks again.
  absl::Status CheckWhoseLog();
  // While the run is not read: for displays.
  void ShowWait(const absl::Status& why);
  // Keeps the first run_uid; CheckRunUid() for the later ones.
  absl::Status NoteRunUid(const std::string& run_uid);
  absl::Status Setup(const v1::Run& run);
  // Before there is a trainer.
  absl::StatusOr<v1::JoinResponse> JoinFirst();
  // Leaves if the attempt ends with `why` and only JoinFirst() has joined:
  // otherwise the run counts an island that never trains until its lease ends.
  void GiveUpPlace(const absl::Status& why);
  v1::JoinRequest MakeJoinRequest() const;
  absl::Status OnJoined(const v1::JoinResponse& response);
  absl::Status OnPlan(const v1::IslandPlan& plan);

  // A join or a plan has `run_epoch`: a later one ends what the island does.
  void NoteRunEpoch(int64_t run_epoch);
  // After news to the loop: logs a restore, and ends what is measured.
  void SettleRestore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives news to the loop and starts the next action of `lane`.
  Action NextAction(Lane lane, int64_t* seen);
  void Done(const Action& action, const absl::Status& status);
  void ForwardWishes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True if a stop must end this process at once: its next one continues.
  bool EndsForRestart() const;
  void Do(Action action, int64_t seen);
  // Executes it in all processes and records the result, also in `action`.
  absl::Status DoTogether(Lane lane, Action& action);
  absl::Status Wait(Lane lane, const Action& action, int64_t seen,
                    std::optional<absl::Time>& wait_until);
  void StartLanes();
  void StopLanes();
  void RunLane(Lane lane);
  void LearnOutcomes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellOutcomes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellServers(const v1::IslandPlan& plan);
  void Trained(const Action& action, const PartResult& result);
  // Hands unpushed work on; of an island that leaves, all that it has.
  void SendUnpushed(bool leaves);
  // Hands the phases of ended synchronizations on; before the island's end,
  // those of all.
  void SendPhases(bool is_end);
  void UpdateMetrics(const Action& action);
  void Paused(const Action& action, absl::Duration span);
  SaveHeader DescribeSave(const Action& action) const;
  void Contributed(const Action& action, const PartResult& result);
  void Evaluated(const Action& action, const absl::Status& status,
                 const PartResult& result);
  absl::Status DoTransfer(Lane lane, const PartCommand& command,
                          PartResult& result);
  // Tells the other processes that `lane` has ended with `status`.
  void EndOthers(Lane lane, const absl::Status& status);
  bool lost() const;
  absl::StatusOr<IslandProgress> Finish(const Action& action);
  // Makes the Leave of this island, at its present step.
  v1::LeaveRequest MakeLeave(const std::string& reason) const;
  absl::Status Explain(const absl::Status& status) const;
  void Report(const Action& action);
  void Log(const Action& action);
  void TellWait(const Action& action, absl::Time now);
  // Its reason without details that change, which follow a colon.
  static std::string Subject(const Action& action);

  const RunIslandOptions options_;
  Mailbox mailbox_;
  IslandLinks links_;

  mutable Mutex mutex_;
  IslandLoop loop_ ABSL_GUARDED_BY(mutex_);
  IslandMeter meter_ ABSL_GUARDED_BY(mutex_);
  PhaseMeter phases_ ABSL_GUARDED_BY(mutex_);
  int stops_forwarded_ ABSL_GUARDED_BY(mutex_) = 0;
  bool trainer_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool lanes_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  // From the newest plan or join; the loop may not have got it yet.
  int64_t newest_run_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t run_epoch_seen_ ABSL_GUARDED_BY(mutex_) = 0;  // The loop's.
  std::vector<std::thread> lanes_;

  // For the log: the news with the newest outcomes that were counted, and
  // servers logged as away.
  int64_t outcomes_seen_ ABSL_GUARDED_BY(mutex_) = 0;
  ContributionMeter contributions_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, bool> servers_away_ ABSL_GUARDED_BY(mutex_);
  std::string run_uid_ ABSL_GUARDED_BY(mutex_);  // Empty: not known.

  v1::RunSpec spec_;
  coordinator::LogSeen log_seen_;
  bool streaming_ = false;
  std::unique_ptr<FirstJoin> first_join_;  // Until the trainer is there.
  std::atomic<bool> has_place_ = false;    // By JoinFirst() alone.
  std::unique_ptr<IslandPart> part_;
  std::optional<IslandMetrics> metrics_;  // If options_.metrics is set.
  // Outcomes for the other processes, sent with the next training command.
  std::vector<v1::ContributionOutcome> untold_ ABSL_GUARDED_BY(mutex_);
  // Payload of the other processes; part_ counts its own.
  int64_t others_sent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t others_received_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t saved_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  IslandProgress progress_;
  std::optional<absl::Time> wait_until_;
  std::optional<absl::Time> reason_time_;  // For TellWait().
  std::string logged_;   // The last line of Log().
  std::string hindrance_;  // Why it does not train; empty: it does.
  std::string index_digest_;  // TrainerTrain.index_digest.
  std::string warning_;       // The newest plan's, for the log.
  int64_t reset_run_epoch_ = 0;  // The run_epoch of the last optimizer reset.
  StepSpeed step_speed_;
  int64_t tokens_a_step_ = 0;          // The newest step's.
  std::unique_ptr<ControlLink> link_;  // Last: its threads call this object.
};

}  // namespace atl::worker
