// The trainer of an island's replica, as the exchange sees it: local parameters
// by fragment, inner steps, and a state that only the trainer understands. Our
// engine is one (engine_trainer.h), a process that speaks
// atoll/v1/trainer.proto another.
//
// Local parameters are f32. Thread-compatible: one call at a time.
//
// All processes of the island must make a call marked "Collective", in the same
// order. Its error is the error of all. UNAVAILABLE: a rank, or the trainer's
// process, is gone.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "atoll/v1/run.pb.h"
#include "base/layout/held_layout.h"
#include "base/layout/layout.h"

namespace atl::worker {

// Inner steps that are due, one after the other.
struct StepRequest {
  int64_t step = 0;            // The run's clock at the first step.
  int64_t step_count_max = 1;  // A trainer may take fewer, but at least one.
  double learning_rate_factor = 1.0;
  int64_t version = 0;        // Version of fragment 0.
  int32_t data_shard = 0;     // Data shard of the run's data.
  int64_t data_position = 0;  // First sample; a step reads inner.batch_size.
};

struct StepResult {
  int64_t step_count = 1;    // Steps taken.
  // The first of them, which the trainer had done before this request: they
  // have no part in the time.
  int64_t kept_step_count = 0;
  // Mean of the steps, nats a token, before updates; nullopt: not known.
  std::optional<double> loss;
  double gradient_norm = 0;  // Before clipping, of the last step; 0: unknown.
  int64_t token_count = 0;
  absl::Time begin, end;
  bool is_last = false;  // The trainer cannot continue: leave the run.
  std::string index_digest;  // TrainerTrain.index_digest.
  // The trainer's own numbers: means of the steps, weighted by tokens.
  std::map<std::string, double> metrics;
};

struct EvaluationResult {
  double loss = 0;  // Nats a token.
  int64_t token_count = 0;
};

// The part of a trainer's state that is not in the parameters: arrays that the
// trainer owns, valid until its next call, or the name under which it keeps its
// state itself.
struct TrainerState {
  absl::Span<const float> first_moment;   // AdamW's m of the held elements;
  absl::Span<const float> second_moment;  // v. Empty: none.
  int64_t step_count = 0;                 // AdamW's t.
  std::string save_id;
};

// A caller reads local parameters, or replaces all of them.
enum class LocalAccess { kRead, kReplace };

class IslandTrainer {
 public:
  virtual ~IslandTrainer() = default;

  // The elements of the model order that this process holds: rising, not
  // adjacent, whole blocks.
  virtual std::vector<IndexRange> held() const = 0;

  // Fingerprint of the data that it trains on; empty: not known.
  virtual std::string data_fingerprint() const { return ""; }
  // SHA-256 (hex) of what decides its results and is not in the run; empty: not
  // known.
  virtual std::string frozen_digest() const { return ""; }

  // The unit of its StepResult.token_count.
  virtual v1::WeightUnit weight_unit() const { return v1::WEIGHT_UNIT_TOKENS; }

  // A line for the trainer's log, if it is a process of its own. Thread-safe.
  virtual void Notify(const std::string& notice) {}

  // Collective. Measures tokens a second. The results of its steps are dropped,
  // and the state is fresh afterwards. 0: not measured.
  virtual absl::StatusOr<double> MeasureSpeed() { return 0.0; }

  // Runs `before_write` on the caller's thread before local parameters or the
  // arrays of Save() change; Train() runs it as late as it can.
  virtual void set_before_write(std::function<void()> before_write) = 0;

  // Collective. Gives the caller the local parameters of `fragments`, until the
  // next call of Train, Evaluate, Load or Reset. kReplace: their values are
  // undefined, and the caller writes all of them.
  virtual absl::Status Acquire(absl::Span<const int32_t> fragments,
                               LocalAccess access) = 0;
  // The values of a piece of an acquired fragment.
  virtual absl::Span<float> Local(int32_t fragment, const HeldPiece& piece) = 0;
  // All held values, if memory has them in the held order; else empty.
  virtual absl::Span<const float> LocalInOrder() { return {}; }
  // The caller changes values of the fragment. Collective.
  virtual void MarkWritten(int32_t fragment) = 0;

  // Collective. NotFinite (base/status/not_finite.h): a loss or a gradient is
  // not finite. INVALID_ARGUMENT, INTERNAL: the data is unusable.
  virtual absl::StatusOr<StepResult> Train(const StepRequest& request) = 0;
  // Makes a Train() on another thread return early, if the trainer can;
  // `at_once`: with CANCELLED. Thread-safe.
  virtual void Interrupt(bool at_once) {}

  // Collective. False: the island has no evaluation data.
  virtual absl::StatusOr<bool> CanEvaluate() { return true; }
  // Collective. Evaluates the local parameters as last written. The loss need
  // not be finite.
  virtual absl::StatusOr<EvaluationResult> Evaluate(int64_t version) = 0;

  // Collective. The trainer takes the written values, though no step follows.
  virtual absl::Status Show() { return absl::OkStatus(); }

  // Collective. Saves the present state. If the trainer keeps its state itself,
  // the state is durable then, and those of the two newest names can be loaded.
  virtual absl::StatusOr<TrainerState> Save(const std::string& save_id) = 0;
  // Goes back to such a state. DATA_LOSS: it is of another trainer.
  virtual absl::Status Load(const TrainerState& state) = 0;
  // Collective. Goes back to the first state.
  virtual absl::Status Reset() = 0;

  // True if the next Load or Reset leaves the state as it is: the trainer has
  // outlived its exchange, and the run's result may depend on time.
  virtual bool keeps_state() const { return false; }

  // Before Load, Reset or the first Train: the run's epoch, and if a restore has
  // begun it, Restore.commit_seq. If the trainer's state is of an earlier
  // epoch, the next Reset tells it of the restore, and keeps nothing.
  virtual void SetRunEpoch(int64_t run_epoch, int64_t restored_commit_seq) {}

  // Returns how long a trainer in another process has owed an answer and said
  // nothing. Thread-safe.
  virtual absl::Duration silence() const { return absl::ZeroDuration(); }

  // Not OK once the trainer's process is gone: the island's attempt ends, and
  // the next attempt continues from the local checkpoint. Thread-safe.
  virtual absl::Status lost() const { return absl::OkStatus(); }
};

}  // namespace atl::worker
