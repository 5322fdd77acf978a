// The status of an island on this machine, for `atoll local status`. Pure.

#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "cli/output/output.h"
#include "worker/api/run_island.h"

namespace atl::cli {

struct LocalStatus {
  std::string run_id;
  std::string island_id;
  std::string state;   // starting, training, waiting, paused, finishing.
  std::string reason;  // For people; may be empty.
  absl::Time until = absl::InfiniteFuture();  // End of a pause.
  worker::IslandProgress progress;            // Totals over all attempts.
  int64_t day_bytes = 0;
  int64_t day_bytes_max = 0;  // 0: no bound.
  std::string last_problem;
};

// Adds {"contributions": {"merged", "late", "stale", "rejected", "dropped"},
// "merged_tokens", "rejected_reason"} to `data`.
void AddTally(const worker::ContributionTally& tally, Json& data);
// The text at `key`; empty if `data` has no text there.
std::string TextOf(const Json& data, const char* key);
// "12 merged, 1 late, 0 stale, 2 rejected (NOT_FINITE), 0 dropped", and the
// tokens in merged ones.
std::string DescribeTally(const worker::ContributionTally& tally);

// Keys: run_id, island_id, state, reason, until (RFC 3339 or null), version,
// round_count, step, step_count, token_count, tokens_per_second, those of
// AddTally, sent_bytes, received_bytes, day_bytes, day_bytes_max (null: no
// bound), last_problem.
Json ToData(const LocalStatus& status);

// The same as text of at most 80 columns, of what ToData made. Missing keys
// are shown as empty.
std::string StatusText(const Json& data, absl::TimeZone zone);

}  // namespace atl::cli
