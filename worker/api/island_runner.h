// Does what IslandLoop decides: the computing thread of an island, and in a
// streaming run one thread that pushes and one that pulls beside it.
//
// Thread-compatible but for OnJoined and OnPlan, which the control link calls.

#ifndef WORKER_API_ISLAND_RUNNER_H_
#define WORKER_API_ISLAND_RUNNER_H_

#include <cstdint>
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
#include "worker/api/control_link.h"
#include "worker/api/island_meter.h"
#include "worker/api/island_state.h"
#include "worker/api/mailbox.h"
#include "worker/api/outbox.h"
#include "worker/api/run_island.h"
#include "worker/api/step_speed.h"
#include "worker/core/contribution_encoder.h"
#include "worker/core/island_loop.h"
#include "worker/data/batch_reader.h"
#include "worker/save/save_file.h"

namespace atl::worker {

class IslandRunner {
 public:
  // Reads the run, opens the data, makes the trainer. Errors as RunIsland.
  static absl::StatusOr<std::unique_ptr<IslandRunner>> Create(
      const RunIslandOptions& options, const IslandLinks& links);

  // Joins and works to the end.
  absl::StatusOr<IslandProgress> Run();

 private:
  IslandRunner(const RunIslandOptions& options, const IslandLinks& links)
      : options_(options), links_(links), loop_(options.run_id) {}

  absl::Status Setup(const v1::Run& run);
  void MeasureSpeed();
  v1::JoinRequest MakeJoinRequest() const;
  void OnJoined(const v1::JoinResponse& response);
  void OnPlan(const v1::IslandPlan& plan);

  // Takes news in and asks what `lane` does next; notes that it begins.
  Action NextAction(Lane lane, int64_t* seen);
  void Done(const Action& action, const absl::Status& status);
  void ForwardStops() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Do(const Action& action, int64_t seen);
  void Wait(Lane lane, const Action& action, int64_t seen,
            std::optional<absl::Time>& wait_until);
  void StartLanes();
  void StopLanes();
  // Pushes or pulls until the lanes are stopped.
  void RunLane(Lane lane);
  std::optional<SaveSummary> LoadSave();
  absl::Status RestoreSave();
  absl::Status RestoreLocal();
  void LearnOutcomes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Pull(const Action& action, Lane lane);
  absl::Status Train(const Action& action);
  absl::Status Contribute(const Action& action);
  v1::ContributionInfo DescribeContribution(const Action& action,
                                            const AnchoredFragment& at) const;
  absl::StatusOr<Outbox::Item> MakeContribution(const Action& action,
                                                const AnchoredFragment& at);
  SaveHeader DescribeSave(const Action& action) const;
  absl::Status WriteSaveOf(const SaveHeader& header,
                           const std::vector<Outbox::Item>& items);
  absl::Status Push(const Action& action, Lane lane);
  absl::Status Evaluate(const Action& action);
  absl::Status PullForEvaluation(const Action& action);
  absl::StatusOr<IslandProgress> Finish(const Action& action);
  void Report(const Action& action);
  void Log(const Action& action);
  std::string SavePath() const;

  const RunIslandOptions options_;
  const IslandLinks links_;
  Mailbox mailbox_;

  mutable Mutex mutex_;
  IslandLoop loop_ ABSL_GUARDED_BY(mutex_);
  IslandMeter meter_ ABSL_GUARDED_BY(mutex_);
  int stops_forwarded_ ABSL_GUARDED_BY(mutex_) = 0;
  bool lanes_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> lanes_;

  v1::RunSpec spec_;
  bool streaming_ = false;
  std::string data_fingerprint_;
  std::unique_ptr<IslandState> state_;
  std::optional<ContributionEncoder> encoder_;
  std::optional<BatchReader> reader_;
  std::optional<Batch> evaluation_batch_;
  std::unique_ptr<server::ParameterClient> parameters_;
  std::optional<Save> save_;  // Read, until it is restored or out of date.
  Outbox outbox_;
  // Of the save that is being written: made once, however often it fails.
  std::vector<Outbox::Item> made_;
  Batch batch_;
  IslandProgress progress_;
  double joining_tokens_per_second_ = 0;  // Elastic runs; else not measured.
  std::optional<absl::Time> wait_until_;
  std::string logged_;  // Last activity and reason that were logged.
  double loss_sum_ = 0;  // Since the last contribution, for the log.
  int64_t loss_count_ = 0;
  StepSpeed step_speed_;
  std::unique_ptr<ControlLink> link_;  // Last: its threads call us.
};

}  // namespace atl::worker

#endif  // WORKER_API_ISLAND_RUNNER_H_
