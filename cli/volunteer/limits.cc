#include "cli/volunteer/limits.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/output/error.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

constexpr int kDayMinutes = 24 * 60;
// The machine is idle if no person has touched it for this time.
constexpr absl::Duration kUntouchedMin = absl::Minutes(5);
// Training ends above this share of other processes, and begins below the next.
constexpr double kOthersShareMax = 0.2;
constexpr double kOthersShareMin = 0.1;

// Minutes after midnight of "22:00"; 24:00 is midnight, too. -1: malformed.
int ParseMinute(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  int hour = 0;
  int minute = 0;
  if (parts.size() != 2 || parts[0].size() > 2 || parts[1].size() != 2 ||
      !absl::SimpleAtoi(parts[0], &hour) ||
      !absl::SimpleAtoi(parts[1], &minute)) {
    return -1;
  }
  const int sum = 60 * hour + minute;
  if (hour < 0 || minute < 0 || minute > 59 || sum > kDayMinutes) return -1;
  return sum % kDayMinutes;
}

bool Holds(const DailyWindow& window, int minute) {
  if (window.begin_minute < window.end_minute) {
    return window.begin_minute <= minute && minute < window.end_minute;
  }
  return window.begin_minute <= minute || minute < window.end_minute;
}

int MinuteOf(absl::Time now, absl::TimeZone zone) {
  const absl::CivilSecond second = absl::ToCivilSecond(now, zone);
  return 60 * second.hour() + second.minute();
}

// The first begin of a window after `now`. A begin that a change of the clock
// skips is when the clock has jumped.
absl::Time NextBegin(const std::vector<DailyWindow>& hours, absl::Time now,
                     absl::TimeZone zone) {
  absl::Time next = absl::InfiniteFuture();
  const absl::CivilDay today = absl::ToCivilDay(now, zone);
  for (int day = 0; day <= 2; ++day) {
    for (const DailyWindow& window : hours) {
      const absl::CivilMinute begin =
          absl::CivilMinute(today + day) + window.begin_minute;
      const absl::Time at = absl::FromCivil(absl::CivilSecond(begin), zone);
      if (at > now) next = std::min(next, at);
    }
  }
  return next;
}

Decision Pause(std::string reason, absl::Time until = absl::InfiniteFuture()) {
  return {.may_train = false, .reason = std::move(reason), .until = until};
}

}  // namespace

absl::StatusOr<std::vector<DailyWindow>> ParseHours(absl::string_view text) {
  std::vector<DailyWindow> hours;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    DailyWindow window{-1, -1};
    if (ends.size() == 2) window = {ParseMinute(ends[0]), ParseMinute(ends[1])};
    if (window.begin_minute < 0 || window.end_minute < 0 ||
        window.begin_minute == window.end_minute) {
      return UsageError(
          absl::StrCat("\"", part, "\" is not a part of a day"),
          "Give begin and end in local time: --hours 22:00-07:00; several are "
          "separated by commas. Without --hours it trains all day.");
    }
    hours.push_back(window);
  }
  return hours;
}

Decision Decide(const Limits& limits, const Facts& facts, absl::Time now,
                absl::TimeZone zone, bool trains) {
  const int minute = MinuteOf(now, zone);
  if (!limits.hours.empty() &&
      std::none_of(
          limits.hours.begin(), limits.hours.end(),
          [&](const DailyWindow& window) { return Holds(window, minute); })) {
    return Pause(absl::StrCat("outside of --hours ", limits.hours_text),
                 NextBegin(limits.hours, now, zone));
  }
  if (limits.daily_transfer_bytes > 0 &&
      facts.transferred_bytes >= limits.daily_transfer_bytes &&
      absl::ToCivilDay(now, zone) <= facts.transfer_day) {
    return Pause(
        absl::StrCat("--daily-transfer: the day's ",
                     FormatBytes(limits.daily_transfer_bytes), " are used"),
        absl::FromCivil(facts.transfer_day + 1, zone));
  }
  if (limits.no_battery && facts.on_battery) {
    return Pause("--no-battery: this machine runs on its battery");
  }
  if (limits.only_idle && facts.untouched < kUntouchedMin) {
    return Pause("--only-idle: someone uses this machine");
  }
  if (limits.only_idle &&
      facts.others_share > (trains ? kOthersShareMax : kOthersShareMin)) {
    return Pause("--only-idle: other programs compute on this machine");
  }
  return {};
}

absl::Status CheckLimitsFit(const Limits& limits, bool is_strict) {
  if (!is_strict || limits.empty()) return absl::OkStatus();
  const char* const flag = !limits.hours.empty() ? "--hours"
                           : limits.only_idle    ? "--only-idle"
                           : limits.no_battery   ? "--no-battery"
                                                 : "--daily-transfer";
  return WithHint(
      WithReason(absl::FailedPreconditionError(absl::StrCat(
                     "this run is strict: each round waits for all islands, so "
                     "with ",
                     flag, " all of them would wait for this machine")),
                 "STRICT_RUN"),
      absl::StrCat("Join without ", flag,
                   ", or ask the operator for a run with schedule.timing = "
                   "\"elastic\"."));
}

}  // namespace atl::cli
