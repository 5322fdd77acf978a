// Which automatic checkpoints a run keeps.
//
// Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace atl::coordinator {

// Automatic checkpoints of a run at most, besides `final`.
inline constexpr int kCheckpointsMax = 32;
// CheckpointSpec.keep_count, where it is 0.
inline constexpr int kKeepCountDefault = 5;

struct KnownCheckpoint {
  std::string pin_id;
  int64_t commit_seq = 0;  // Its place among the others.
  absl::Time time;         // When it was made.
  bool suspect = false;    // Pin.suspect.
};

// The checkpoints to release, oldest first. These stay, at most kCheckpointsMax,
// and in this order if there are more: the newest that is not suspect; the
// `keep_count` newest (0: the default); the first of each of the last 7 days;
// the first of each of the last 24 hours, the newest hour first. Days and hours
// are those of UTC, so that a checkpoint that was kept as the first of its hour
// is kept until the hour is too old.
std::vector<std::string> ListExpired(std::vector<KnownCheckpoint> checkpoints,
                                     int keep_count, absl::Time now);

}  // namespace atl::coordinator
