// A trainer in another process, as an IslandTrainer (atoll/v1/trainer.proto).
//
// A trainer outlives its exchange. When it connects again it says which steps
// it has done since which save (TrainerStanding), and continues from there:
//
//   the first Load names such a save,   the trainer keeps the steps, and its
//   and the first Train repeats them    parameters: nothing is written
//   only the save fits                  it keeps its state; parameters are
//                                       written
//   nothing fits, strict run            it goes back to the save, as the run's
//                                       bits need
//   nothing fits, elastic run           it keeps its state; parameters are
//                                       written
//   the run was restored since          it is told so, and goes back to its
//                                       first state; parameters are written

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/trainer.pb.h"
#include "base/layout/layout.h"
#include "worker/island/island_trainer.h"
#include "worker/sdk/trainer_host.h"

namespace atl::worker {

class RemoteTrainer : public IslandTrainer {
 public:
  // Waits for a trainer. Unless Load() comes before its first step, it begins
  // with its first state. `hello` describes the run and the island. `host`
  // outlives this. Errors as TrainerHost::Connect, with `join` and `give_up`,
  // and Ask; INVALID_ARGUMENT: the layout is invalid.
  static absl::StatusOr<std::unique_ptr<RemoteTrainer>> Create(
      TrainerHost& host, const v1::TrainerHello& hello, const v1::RunSpec& spec,
      const TrainerHost::Join& join, std::stop_token stop,
      absl::Time give_up = absl::InfiniteFuture());

  std::vector<IndexRange> held() const override;
  std::string data_fingerprint() const override {
    return host_.data_fingerprint();
  }
  v1::WeightUnit weight_unit() const override;
  void Notify(const std::string& notice) override { host_.Notify(notice); }
  std::string frozen_digest() const override { return host_.frozen_digest(); }
  void set_before_write(std::function<void()> before_write) override;
  absl::Status Acquire(absl::Span<const int32_t> fragments,
                       LocalAccess access) override;
  absl::Span<float> Local(int32_t fragment, const HeldPiece& piece) override;
  void MarkWritten(int32_t fragment) override;
  absl::StatusOr<StepResult> Train(const StepRequest& request) override;
  void Interrupt(bool at_once) override { host_.Interrupt(at_once); }
  // False before kept steps: the parameters would be overwritten.
  absl::StatusOr<bool> CanEvaluate() override { return !kept_.has_value(); }
  absl::StatusOr<EvaluationResult> Evaluate(int64_t version) override;
  absl::Status Show() override;
  absl::StatusOr<TrainerState> Save(const std::string& save_id) override;
  absl::Status Load(const TrainerState& state) override;
  absl::Status Reset() override;
  void SetRunEpoch(int64_t run_epoch, int64_t restored_commit_seq) override;
  bool keeps_state() const override;
  absl::Duration silence() const override { return host_.silence(); }
  absl::Status lost() const override { return host_.lost(); }

 private:
  // Where the newest values of a fragment are.
  enum class Place {
    kTrainer,  // In the trainer; the region has old ones.
    kBoth,     // The region has the trainer's.
    kRegion,   // In the region; the trainer has old ones.
  };

  // Steps that the trainer has kept. The next request shows whether the run
  // uses them.
  struct Kept {
    std::string save_id;  // The one of the exchange's record.
    v1::TrainerStanding standing;
  };

  RemoteTrainer(TrainerHost& host, RunLayout layout, const v1::RunSpec& spec);

  // Gives the trainer what was written here.
  absl::Status Write();
  absl::Status LoadId(const std::string& save_id);
  absl::Status SendLoad(const std::string& save_id, bool keep);
  // The trainer's state is from before the run's newest restore.
  bool IsFromBeforeRestore() const;
  // Gives kept steps up, if there are any.
  absl::Status DropKept();

  TrainerHost& host_;
  const RunLayout layout_;
  const v1::WeightUnit unit_of_run_;
  std::function<void()> before_write_ = [] {};
  std::vector<Place> places_;
  const bool is_strict_;
  // Each round begins from one cut, which its version and position name.
  const bool is_in_rounds_;
  v1::TrainerHello hello_;  // The trainer's: what it has kept.
  bool has_state_ = false;  // The trainer was told which state to have.
  int64_t run_epoch_ = 0;
  int64_t restored_commit_seq_ = 0;
  // The run_epoch that the trainer's state is of; 0: not known.
  int64_t trainer_epoch_ = 0;
  std::optional<Kept> kept_;
};

}  // namespace atl::worker
