// Does what IslandLoop decides: the computing thread of an island.
//
// Thread-compatible but for OnJoined and OnPlan, which the control link calls.

#ifndef WORKER_API_ISLAND_RUNNER_H_
#define WORKER_API_ISLAND_RUNNER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/sync/mutex.h"
#include "worker/api/control_link.h"
#include "worker/api/island_meter.h"
#include "worker/api/island_state.h"
#include "worker/api/mailbox.h"
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

  void ForwardStops();
  void Do(const Action& action);
  void Wait(const Action& action);
  std::optional<SaveSummary> LoadSave();
  absl::Status RestoreSave();
  void LearnOutcomes();
  absl::Status Pull(const Action& action);
  absl::Status Train(const Action& action);
  absl::Status Contribute(const Action& action);
  v1::ContributionInfo DescribeContribution(const Action& action,
                                            const AnchoredFragment& at) const;
  SaveHeader DescribeSave(const Action& action) const;
  absl::Status Push(const Action& action);
  absl::Status Evaluate(const Action& action);
  absl::Status PullForEvaluation();
  absl::StatusOr<IslandProgress> Finish(const Action& action);
  void Report(const Action& action);
  void Log(const Action& action);
  std::string SavePath() const;

  const RunIslandOptions options_;
  const IslandLinks links_;
  IslandLoop loop_;
  Mailbox mailbox_;
  v1::RunSpec spec_;
  std::string data_fingerprint_;
  std::unique_ptr<IslandState> state_;
  std::optional<ContributionEncoder> encoder_;
  std::optional<BatchReader> reader_;
  std::optional<Batch> evaluation_batch_;
  std::unique_ptr<server::ParameterClient> parameters_;
  std::optional<Save> save_;  // Last written or read; its buffers are reused.
  Batch batch_;
  IslandProgress progress_;
  double joining_tokens_per_second_ = 0;  // Elastic runs; else not measured.
  int stops_forwarded_ = 0;
  std::optional<absl::Time> wait_until_;
  std::string logged_;  // Last activity and reason that were logged.
  double loss_sum_ = 0;  // Of the round's steps, for the log.
  IslandMeter meter_;
  StepSpeed step_speed_;
  std::unique_ptr<ControlLink> link_;  // Last: its threads call us.
};

}  // namespace atl::worker

#endif  // WORKER_API_ISLAND_RUNNER_H_
