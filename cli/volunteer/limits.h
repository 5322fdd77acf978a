// Decides when a volunteer's machine may train.
//
// Pure: no clock, no file, no thread. Thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"

namespace atl::cli {

// A part of each local day, [begin, end) in minutes after midnight. If end is
// not after begin, it ends on the next day.
struct DailyWindow {
  int begin_minute = 0;
  int end_minute = 0;
};

// Parses --hours: "22:00-07:00", "12:00-13:30,20:00-06:00".
// INVALID_ARGUMENT (a usage error): anything else.
absl::StatusOr<std::vector<DailyWindow>> ParseHours(absl::string_view text);

struct Limits {
  std::string hours_text;          // As given, for people.
  std::vector<DailyWindow> hours;  // Empty: always.
  bool only_idle = false;
  bool no_battery = false;
  int64_t daily_transfer_bytes = 0;  // 0: no bound.

  bool empty() const {
    return hours.empty() && !only_idle && !no_battery &&
           daily_transfer_bytes == 0;
  }
};

// Measurements of the machine.
struct Facts {
  // Time since someone used a keyboard, a mouse or a terminal.
  absl::Duration untouched = absl::InfiniteDuration();
  // Share of all processors that other processes use, in [0, 1].
  double others_share = 0;
  bool on_battery = false;
  // Bytes that the island sent and received on `transfer_day`.
  int64_t transferred_bytes = 0;
  absl::CivilDay transfer_day;
};

struct Decision {
  bool may_train = true;
  std::string reason;  // Why not, for people; it does not change every second.
  // When it will be allowed. InfiniteFuture: that depends on the machine.
  absl::Time until = absl::InfiniteFuture();
};

// `trains`: the previous decision, for hysteresis.
Decision Decide(const Limits& limits, const Facts& facts, absl::Time now,
                absl::TimeZone zone, bool trains);

// A strict run waits for each of its islands, so no limit may end the training
// for hours. FAILED_PRECONDITION (reason STRICT_RUN): the run is strict, and
// there is a limit.
absl::Status CheckLimitsFit(const Limits& limits, bool is_strict);

}  // namespace atl::cli
