// Our engine as an IslandTrainer: it reads the run's data itself.
//
// Unless told to, it never waits for data by URL. Train and CanEvaluate return
// DataAwaited (worker/core/data_awaited.h), in all processes, if one of them
// lacks some.

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
#include "worker/data/fetch/open_data.h"
#include "worker/engine/trainer.h"
#include "worker/island/island_trainer.h"

namespace atl::worker {

using TrainerMaker =
    std::function<absl::StatusOr<std::unique_ptr<engine::Trainer>>(
        const engine::TrainerOptions&)>;

struct EngineTrainerOptions {
  int thread_count = 1;
  DataOptions data;
  bool check_fingerprint = true;  // Whether the data must be the run's.
  // Whether Train and CanEvaluate wait for data by URL: kYes for a caller
  // without a loop.
  BatchReader::Wait wait = BatchReader::Wait::kNo;
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
  void MarkWritten(int32_t fragment) override;
  absl::StatusOr<StepResult> Train(const StepRequest& request) override;
  absl::StatusOr<bool> CanEvaluate() override;
  absl::StatusOr<EvaluationResult> Evaluate(int64_t version) override;
  absl::StatusOr<TrainerState> Save(const std::string& save_id) override;
  absl::Status Load(const TrainerState& state) override;
  absl::Status Reset() override;

 private:
  EngineTrainer(const v1::RunSpec& spec, const EngineTrainerOptions& options)
      : spec_(spec), options_(options) {}

  // The place of the newest values.
  enum class Place {
    kRanks,  // A step ran since they were gathered.
    kBoth,
    kHere,  // Written since they were scattered.
  };

  absl::Status OpenReader();
  // Fills batch_ without reading data.
  void MakeUpBatch();
  // Trains on batch_.
  absl::StatusOr<StepResult> Step(const StepRequest& request);
  absl::Status InitFragments();
  // The elements of the fragments that are at `place`.
  std::vector<engine::ParameterSpan> ElementsAt(
      Place place, absl::Span<const int32_t> fragments) const;
  // Collective. Updates the ranks where they are behind.
  absl::Status Scatter();

  const v1::RunSpec spec_;
  const EngineTrainerOptions options_;
  std::unique_ptr<engine::Trainer> trainer_;
  std::function<void()> before_write_ = [] {};
  bool trainer_calls_it_ = false;  // Trainer::Step calls before_write_.
  // By fragment: its elements in the model, and their place.
  std::vector<std::vector<engine::ParameterSpan>> elements_;
  std::vector<Place> places_;
  std::vector<int32_t> all_fragments_;
  Place moments_ = Place::kBoth;
  std::optional<BatchReader> reader_;
  std::string fingerprint_;
  Batch batch_;
  Batch evaluation_batch_;
  bool has_evaluation_batch_ = false;  // It is whole.
  bool has_prefetched_ = false;        // The held-out data.
};

}  // namespace atl::worker
