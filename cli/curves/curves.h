// The curves of a run: what TensorBoard and CSV files show of its rounds.
// Thread-compatible.
//
// A curve's step is the commit number: the run's one order of decisions. It is
// unique also if fragments are committed apart, where versions repeat. Tokens
// are a curve of their own. Names are torchtitan's where it has the curve:
//   loss_metrics/global_avg_loss, loss_metrics/outer_validation_loss (at the
//   commit that was evaluated), throughput(tps), outer/gradient_norm,
//   rounds/merged_tokens, rounds/collect_seconds (OPEN to SEAL),
//   rounds/merge_seconds (SEAL to COMMIT)
// A restore is a point of run/restored_to_commit, at its own place in the order.

#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/training_state_service.pb.h"
#include "cli/curves/csv_writer.h"
#include "cli/curves/event_writer.h"

namespace atl::cli {

// The points of one round, without its evaluation. Pure.
std::vector<CurvePoint> PointsOf(const v1::Round& round,
                                 std::optional<double> tokens_per_second);

// The point of an evaluation that was known at `time`. Pure.
CurvePoint PointOf(const v1::Evaluation& evaluation, absl::Time time);

class Curves {
 public:
  // Null writers write nothing.
  Curves(std::unique_ptr<EventWriter> events, std::unique_ptr<CsvWriter> csv)
      : events_(std::move(events)), csv_(std::move(csv)) {}

  // Adds a round, and its evaluation if it has one, in the order of commits.
  // Data that the files have is not written again; an evaluation that failed is
  // no point. Errors as the file system's.
  absl::Status Add(const v1::Round& round);
  absl::Status Add(const v1::Evaluation& evaluation, absl::Time time);
  // Adds the mark of a restore, in the order of commits.
  absl::Status Add(const v1::Restore& restore);

 private:
  // From the commit before; nullopt if it is not known.
  std::optional<double> TokensPerSecond(const v1::Round& round);

  const std::unique_ptr<EventWriter> events_;
  const std::unique_ptr<CsvWriter> csv_;
  int64_t commit_seq_ = 0;          // The last round's.
  int64_t merged_token_count_ = 0;  // Merged tokens after that round.
  absl::Time commit_time_;
};

}  // namespace atl::cli
