// Our engine as an IslandTrainer: it reads the run's data itself.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "atoll/v1/run.pb.h"
#include "worker/data/batch_reader.h"
#include "worker/engine/trainer.h"
#include "worker/island/island_trainer.h"

namespace atl::worker {

using TrainerMaker =
    std::function<absl::StatusOr<std::unique_ptr<engine::Trainer>>(
        const engine::TrainerOptions&)>;

struct EngineTrainerOptions {
  int thread_count = 1;
  std::string data_path;         // Empty: the path in the spec.
  bool check_fingerprint = true;  // Whether the data must be the run's.
  TrainerMaker make_trainer = engine::Trainer::Create;
  // Makes an error of one process the error of all.
  std::function<absl::Status(const absl::Status&)> agree =
      [](const absl::Status& status) { return status; };
};

class EngineTrainer : public IslandTrainer {
 public:
  // INVALID_ARGUMENT: the spec cannot be trained here; the message says why.
  // FAILED_PRECONDITION: the data is not the run's. NOT_FOUND: there is no
  // data. RESOURCE_EXHAUSTED: not enough memory.
  static absl::StatusOr<std::unique_ptr<EngineTrainer>> Create(
      const v1::RunSpec& spec, const EngineTrainerOptions& options);

  std::vector<IndexRange> held() const override;
  std::string data_fingerprint() const override { return fingerprint_; }
  absl::StatusOr<double> MeasureSpeed() override;
  void set_before_write(std::function<void()> before_write) override;
  absl::Status Acquire(absl::Span<const int32_t> fragments,
                       LocalAccess access) override;
  absl::Span<float> Local(int32_t fragment, const HeldPiece& piece) override;
  absl::Span<const float> LocalInOrder() override;
  void MarkWritten(int32_t fragment) override { ranks_behind_ = true; }
  absl::StatusOr<StepResult> Train(const StepRequest& request) override;
  absl::StatusOr<bool> CanEvaluate() override;
  absl::StatusOr<EvaluationResult> Evaluate(int64_t version) override;
  absl::StatusOr<TrainerState> Save(const std::string& save_id) override;
  absl::Status Load(const TrainerState& state) override;
  absl::Status Reset() override;

 private:
  EngineTrainer(const v1::RunSpec& spec, const EngineTrainerOptions& options)
      : spec_(spec), options_(options) {}

  absl::Status OpenData();
  // Collective. Gets parameters and optimizer from the ranks: after a step the
  // trainer's spans may be empty.
  absl::Status Gather();
  // Collective. Updates the ranks if they are behind.
  absl::Status Scatter();

  const v1::RunSpec spec_;
  const EngineTrainerOptions options_;
  std::unique_ptr<engine::Trainer> trainer_;
  std::function<void()> before_write_ = [] {};
  bool trainer_calls_it_ = false;  // Trainer::Step calls before_write_.
  bool ranks_ahead_ = false;       // A step ran since Gather().
  bool ranks_behind_ = false;      // The copy here was written since Scatter().
  std::optional<BatchReader> reader_;
  std::string fingerprint_;
  Batch batch_;
  std::optional<Batch> evaluation_batch_;
};

}  // namespace atl::worker
