// The checks of `atoll doctor`: their results, as text and as data.
//
// Pure. Thread-compatible.

#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cli/output/output.h"

namespace atl::cli {

// A clock further off, or a disk slower to sync, than these is reported: of this
// machine and of a cluster's services.
inline constexpr absl::Duration kClockWarn = absl::Seconds(30);
inline constexpr absl::Duration kClockFail = absl::Minutes(5);
inline constexpr absl::Duration kSlowSync = absl::Milliseconds(50);

enum class CheckResult { kPassed, kWarn, kFailed };

struct Check {
  std::string id;  // snake_case, stable over versions.
  CheckResult result = CheckResult::kPassed;
  std::string message;  // The finding.
  std::string action;   // Advice to the user; may be empty.

  bool operator==(const Check&) const = default;
};

Check Passed(absl::string_view id, absl::string_view message);
Check Warn(absl::string_view id, absl::string_view message,
           absl::string_view action);
Check Failed(absl::string_view id, absl::string_view message,
             absl::string_view action);
// A check whose precondition failed: a WARN, because the failure is shown once.
Check NotChecked(absl::string_view id, absl::string_view why);

// "PASSED", "WARN" or "FAILED".
absl::string_view ResultName(CheckResult result);

// The error of a command whose checks failed: exit code 10.
absl::Status MakeCheckError(absl::string_view message);

// Result, id, message and action, in lines of at most 80 columns.
std::string ToText(const Check& check);

// The checks of one command, in order.
class Checks {
 public:
  // `on_check` sees each check when it is added; may be empty.
  explicit Checks(std::function<void(const Check&)> on_check = nullptr)
      : on_check_(std::move(on_check)) {}

  void Add(Check check);
  // Adds NotChecked for each of `ids`.
  void Skip(absl::Span<const absl::string_view> ids, absl::string_view why);

  const std::vector<Check>& all() const { return checks_; }
  bool HasFailed(absl::string_view id) const;

  // [{"id", "result", "message", "action"}]
  Json ToData() const;
  // OK, or the error with exit code 10 that names the checks that failed.
  absl::Status ToStatus() const;

 private:
  std::function<void(const Check&)> on_check_;
  std::vector<Check> checks_;
};

}  // namespace atl::cli
