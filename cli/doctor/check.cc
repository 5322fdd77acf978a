#include "cli/doctor/check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/output/error.h"
#include "cli/output/table.h"

namespace atl::cli {

Check Passed(absl::string_view id, absl::string_view message) {
  return {std::string(id), CheckResult::kPassed, std::string(message), ""};
}

Check Warn(absl::string_view id, absl::string_view message,
           absl::string_view action) {
  return {std::string(id), CheckResult::kWarn, std::string(message),
          std::string(action)};
}

Check Failed(absl::string_view id, absl::string_view message,
             absl::string_view action) {
  return {std::string(id), CheckResult::kFailed, std::string(message),
          std::string(action)};
}

Check NotChecked(absl::string_view id, absl::string_view why) {
  return Warn(id, absl::StrCat("not checked: ", why), "");
}

absl::string_view ResultName(CheckResult result) {
  switch (result) {
    case CheckResult::kPassed:
      return "PASSED";
    case CheckResult::kWarn:
      return "WARN";
    case CheckResult::kFailed:
      break;
  }
  return "FAILED";
}

absl::Status MakeCheckError(absl::string_view message) {
  return WithReason(WithExitCode(absl::FailedPreconditionError(message),
                                 ExitCode::kPreflightFailed),
                    "CHECK_FAILED");
}

std::string ToText(const Check& check) {
  Fields fields;
  fields.AddText(
      absl::StrFormat("%-6s  %-11s", ResultName(check.result), check.id),
      check.message);
  if (!check.action.empty()) {
    fields.AddText("", absl::StrCat("-> ", check.action));
  }
  return fields.ToString();
}

void Checks::Add(Check check) {
  if (on_check_) on_check_(check);
  checks_.push_back(std::move(check));
}

void Checks::Skip(absl::Span<const absl::string_view> ids,
                  absl::string_view why) {
  for (const absl::string_view id : ids) Add(NotChecked(id, why));
}

bool Checks::HasFailed(absl::string_view id) const {
  return std::any_of(checks_.begin(), checks_.end(), [id](const Check& check) {
    return check.id == id && check.result == CheckResult::kFailed;
  });
}

Json Checks::ToData() const {
  Json data = Json::array();
  for (const Check& check : checks_) {
    data.push_back({{"id", check.id},
                    {"result", std::string(ResultName(check.result))},
                    {"message", check.message},
                    {"action", check.action}});
  }
  return data;
}

absl::Status Checks::ToStatus() const {
  std::string failed;
  for (const Check& check : checks_) {
    if (check.result != CheckResult::kFailed) continue;
    absl::StrAppend(&failed, failed.empty() ? "" : ", ", check.id);
  }
  if (failed.empty()) return absl::OkStatus();
  return MakeCheckError(absl::StrCat("FAILED: ", failed));
}

}  // namespace atl::cli
