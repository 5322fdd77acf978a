// The subject of `atoll plan`: its flags, and the model or run that they name.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "atoll/v1/run.pb.h"
#include "worker/api/planner.h"

namespace atl::cli {

// Islands, unless --islands or a run file says how many.
inline constexpr int kPlannedIslandCount = 4;

struct PlanOptions {
  std::string model;
  std::string link, up, down;
  std::string rtt = "0s";
  double tokens_per_second = 0;
  double slowest_tokens_per_second = 0;
  std::string tokens_per_step;
  std::string tokens;
  std::string up_codec, down_codec;
  std::string merge = "3GB/s";
  std::string codec = "8GB/s";
  std::string server_link;
  int islands = 0;
  int64_t layers = 0;
  int64_t inner_steps = 0;
  int64_t fragments = 0;
  int64_t overlap = -1;
  double target = worker::planner::kTargetUtilization;
  bool local_data = false;
  bool kubernetes = false;
  int servers = 0;
};

// The subject of a plan: a model and, from a run file, its run.
struct Subject {
  worker::PlannedModel model;
  std::optional<v1::RunSpec> run;
  int64_t tokens_a_step = 0;
  int64_t token_count = 0;  // To merge in all; 0: not given.
};

// Prepends the flag to an error.
absl::Status Named(const std::string& flag, const absl::Status& status);

// Reads what --model names. Errors name the flag, or as LoadRunFile.
absl::StatusOr<Subject> ReadSubject(const PlanOptions& options);

// Applies --inner-steps, --overlap and the codecs. A usage error: they do not
// fit.
absl::StatusOr<worker::planner::Exchange> Change(
    const PlanOptions& options, worker::planner::Exchange exchange);

}  // namespace atl::cli
