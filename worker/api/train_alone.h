// One island without a service: the same inner steps as an island of a run, on
// data shard 0. The baseline for a run's loss, and the definition of its bits.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "atoll/v1/run.pb.h"
#include "worker/data/fetch/open_data.h"

namespace atl::worker {

struct TrainAloneProgress {
  int64_t step = 0;        // Inner steps done.
  int64_t step_count = 0;  // Inner steps to do.
  double loss = 0;         // The last step's, nats a token.
  double tokens_per_second = 0;
  // Held-out loss, when the run's evaluation is due.
  std::optional<double> validation_loss;
};

struct TrainAloneOptions {
  v1::RunSpec spec;
  DataOptions data;
  int thread_count = 1;
  std::string device;  // "cpu", "cuda", "cuda:N"; empty: "cpu".
  // Steps; 0: those of a run's island, PlannedStepCount(spec).
  int64_t step_count = 0;
  // Every inner_step_count steps theta = anchor - (anchor - theta) in f32, as
  // in a run of one island with outer SGD and lr 1.
  bool outer_round_trip = false;
  // Read all data shards as one.
  bool one_data_shard = false;
  std::stop_token stop;
  std::function<void(const TrainAloneProgress&)> on_progress;  // Each step.
};

struct TrainAloneResult {
  std::vector<float> parameters;  // In the model order.
  std::string parameters_sha256;
  int64_t step_count = 0;
  double validation_loss = 0;  // At the end; 0 if nothing is held out.
  double tokens_per_second = 0;
};

// Trains from version 0 of `spec`. INVALID_ARGUMENT: unusable spec or data;
// version 0 is an import. FAILED_PRECONDITION: no such device here. CANCELLED:
// stopped. INTERNAL: training failed.
absl::StatusOr<TrainAloneResult> TrainAlone(const TrainAloneOptions& options);

}  // namespace atl::worker
