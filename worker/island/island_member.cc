#include "worker/island/island_member.h"

#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/failpoint/failpoint.h"
#include "base/layout/run_length.h"
#include "base/obs/log.h"
#include "base/status/status_macros.h"
#include "worker/core/data_awaited.h"
#include "worker/island/group/part_command.h"
#include "worker/island/island_part.h"
#include "worker/island/meter/step_speed.h"
#include "worker/island/transfer_bounds.h"

namespace atl::worker {
namespace {

class Member {
 public:
  Member(const RunIslandOptions& options, const IslandLinks& links)
      : options_(options), links_(links), group_(*links.group) {}

  absl::StatusOr<IslandProgress> Run() {
    const std::stop_callback stop_at_once(options_.stop_at_once, [this] {
      group_.Abort("it was stopped at once");
    });
    ASSIGN_OR_RETURN(const std::string setup, group_.Receive(Lane::kTraining));
    ASSIGN_OR_RETURN(const v1::Run run, DecodeSetup(setup));
    const bool strict =
        run.spec().schedule().timing() == v1::TIMING_STRICT;
    const std::stop_callback stop(options_.stop, [this, strict] {
      if (strict && options_.stop_for_restart.stop_requested()) {
        group_.Abort("it was stopped, to be restarted");
      } else {
        group_.RequestStop(1);
      }
    });
    progress_.round_count = run.spec().schedule().round_count();
    progress_.step_count = PlannedStepCount(run.spec());
    ASSIGN_OR_RETURN(part_, IslandPart::Create(options_, links_, run));
    if (options_.metrics != nullptr) {
      options_.metrics->SetReady(absl::OkStatus());
    }
    std::vector<std::thread> lanes;
    if (part_->streaming()) {
      for (const Lane lane : {Lane::kPush, Lane::kPull, Lane::kSave}) {
        lanes.emplace_back([this, lane] { Follow(lane).IgnoreError(); });
      }
    }
    const absl::Status end = Follow(Lane::kTraining);
    for (std::thread& lane : lanes) lane.join();
    if (!end.ok() && options_.stop_at_once.stop_requested()) {
      return absl::CancelledError("stopped at once");
    }
    RETURN_IF_ERROR(end);
    return progress_;
  }

 private:
  // Executes the commands of `lane` until kFinish.
  absl::Status Follow(Lane lane) {
    while (true) {
      ASSIGN_OR_RETURN(const std::string message, group_.Receive(lane));
      absl::StatusOr<PartCommand> command = DecodeCommand(message);
      if (!command.ok()) {
        group_.Abort(command.status().message());
        return command.status();
      }
      const Action& action = command->action;
      if (action.kind == ActionKind::kFinish) return action.status;
      if (action.kind == ActionKind::kWait) {
        RETURN_IF_ERROR(group_.Agree(lane, absl::OkStatus()));
        if (lane == Lane::kTraining) Report(action);
        continue;
      }
      if (lane == Lane::kTraining) {
        for (const v1::ContributionOutcome& outcome : command->resolved) {
          part_->Resolve(outcome);
        }
        Report(action);
      }
      if (NeedsSession(action.kind)) {
        part_->SetIdentity(command->island_epoch, command->session_secret);
        part_->SetRoutes(command->routes);
      }
      PartResult result;
      // Process 0 ends transfers that a plan makes obsolete.
      const absl::Status done =
          part_->Do(lane, *command, {.idle_max = kTransferIdleMax}, result);
      RETURN_IF_ERROR(group_.lost());
      // A stopped transfer is obsolete: process 0 logs why.
      if (!done.ok() && !absl::IsCancelled(done) && !IsDataAwaited(done)) {
        LOG(WARNING) << ActionName(action.kind) << " failed: " << done;
      }
      if (done.ok() && action.kind == ActionKind::kPush) {
        failpoint::Hit("island.pushed.after");
      }
      if (done.ok() && action.kind == ActionKind::kTrain) {
        Trained(action, result);
      }
    }
  }

  void Trained(const Action& action, const PartResult& result) {
    speed_.Add(result.step.token_count,
               absl::ToDoubleSeconds(result.step.end - result.step.begin));
    progress_.tokens_per_second = speed_.tokens_per_second();
    progress_.step = action.step + 1;
    progress_.token_count += result.step.token_count;
    progress_.loss = result.step.loss;
    progress_.gradient_norm = result.step.gradient_norm;
  }

  void Report(const Action& action) {
    if (!options_.on_progress) return;
    progress_.activity = ActionName(action.kind);
    progress_.reason = "as process 0 says";
    if (action.kind == ActionKind::kPull && action.fragment == 0) {
      progress_.version = action.version;
    }
    const server::TransferCounters counters = part_->counters();
    progress_.sent_bytes = counters.sent_payload_bytes;
    progress_.received_bytes = counters.received_payload_bytes;
    options_.on_progress(progress_);
  }

  const RunIslandOptions& options_;
  const IslandLinks& links_;
  IslandGroup& group_;
  std::unique_ptr<IslandPart> part_;
  IslandProgress progress_;
  StepSpeed speed_;
};

}  // namespace

absl::StatusOr<IslandProgress> RunMember(const RunIslandOptions& options,
                                         const IslandLinks& links) {
  return Member(options, links).Run();
}

}  // namespace atl::worker
