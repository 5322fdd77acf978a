// The result of a run on one machine: DIR/result.json, and what `atoll dev up`
// prints.
//
// Pure except for the functions that take a path. Thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "atoll/v1/training_state_service.pb.h"
#include "cli/output/output.h"

namespace atl::cli {

struct DevResult {
  std::string run_id;
  std::string state;  // "COMPLETED"
  int64_t rounds = 0;
  int64_t inner_steps_per_island = 0;
  int islands = 0;
  int servers = 0;
  double last_evaluation_loss = 0;  // From the islands' evaluation; 0: none.
  int64_t merged_tokens = 0;
  double seconds = 0;  // From the first round's open to the last commit.
  double tokens_per_second = 0;  // Sum over all islands, waits included.
  int64_t bytes_up = 0;          // Payload that was merged.
  int64_t bytes_down = 0;        // Payload that islands pulled.
  std::string checkpoint;        // Directory of the export; empty: none.
  std::string validation_file;   // Empty without held-out tokens.
  std::string parameters_sha256;
};

// Computes the result. `rounds`: the committed rounds, in their order.
DevResult Summarize(const v1::GetRunStateResponse& state,
                    const std::vector<v1::Round>& rounds);

Json ToData(const DevResult& result);
std::string ToText(const DevResult& result);

// Writes `json` to `path` atomically, by a rename.
absl::Status WriteJson(const std::string& path, const Json& json);

// OK if WriteJson(path, json) replaces no file of a person: nothing is there,
// or a JSON object of the same keys. ALREADY_EXISTS with reason NOT_OURS
// otherwise.
absl::Status CheckReplaceable(const std::string& path, const Json& json);

// Reads a file that WriteJson(path, ToData(result)) wrote.
//
// NOT_FOUND: there is no such file. DATA_LOSS: the file is not a result.
absl::StatusOr<DevResult> ReadDevResult(const std::string& path);

}  // namespace atl::cli
