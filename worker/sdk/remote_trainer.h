// A trainer in another process, as an IslandTrainer (atoll/v1/trainer.proto).

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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
  // outlives this. Errors as TrainerHost::Connect, with `give_up`, and Ask;
  // INVALID_ARGUMENT: the layout is invalid.
  static absl::StatusOr<std::unique_ptr<RemoteTrainer>> Create(
      TrainerHost& host, const v1::TrainerHello& hello, const v1::RunSpec& spec,
      std::stop_token stop, absl::Time give_up = absl::InfiniteFuture());

  std::vector<IndexRange> held() const override;
  std::string data_fingerprint() const override {
    return host_.data_fingerprint();
  }
  v1::WeightUnit weight_unit() const override;
  void Notify(const std::string& notice) override { host_.Notify(notice); }
  void set_before_write(std::function<void()> before_write) override;
  absl::Status Acquire(absl::Span<const int32_t> fragments,
                       LocalAccess access) override;
  absl::Span<float> Local(int32_t fragment, const HeldPiece& piece) override;
  void MarkWritten(int32_t fragment) override;
  absl::StatusOr<StepResult> Train(const StepRequest& request) override;
  void Interrupt(bool at_once) override { host_.Interrupt(at_once); }
  absl::StatusOr<EvaluationResult> Evaluate(int64_t version) override;
  absl::Status Show() override { return Flush(); }
  absl::StatusOr<TrainerState> Save(const std::string& save_id) override;
  absl::Status Load(const TrainerState& state) override;
  absl::Status Reset() override;
  absl::Duration silence() const override { return host_.silence(); }
  absl::Status lost() const override { return host_.lost(); }

 private:
  // Where the newest values of a fragment are.
  enum class Place {
    kTrainer,  // In the trainer; the region has old ones.
    kBoth,     // The region has the trainer's.
    kRegion,   // In the region; the trainer has old ones.
  };

  RemoteTrainer(TrainerHost& host, RunLayout layout, v1::WeightUnit unit)
      : host_(host),
        layout_(std::move(layout)),
        unit_of_run_(unit),
        places_(layout_.fragment_count(), Place::kTrainer) {}

  // Gives the trainer its state, if it has none yet, and what was written.
  absl::Status Flush();
  absl::Status LoadId(const std::string& save_id);

  TrainerHost& host_;
  const RunLayout layout_;
  const v1::WeightUnit unit_of_run_;
  std::function<void()> before_write_ = [] {};
  std::vector<Place> places_;
  bool has_state_ = false;  // The trainer was told which state to have.
};

}  // namespace atl::worker
