#include "cli/flags/number_check.h"

#include <cmath>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace atl::cli {
namespace {

// Reads a finite number. Returns the error sentence, or "" if `number` is set.
std::string Read(const std::string& text, double* number) {
  if (absl::SimpleAtod(text, number) && std::isfinite(*number)) return "";
  return absl::StrCat("'", text, "' is not a number");
}

}  // namespace

CLI::Validator Positive() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        double number = 0;
        const std::string wrong = Read(text, &number);
        if (!wrong.empty() || number > 0) return wrong;
        return absl::StrCat("must be above 0, not ", text);
      },
      "POSITIVE");
}

CLI::Validator NotNegative() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        double number = 0;
        const std::string wrong = Read(text, &number);
        if (!wrong.empty() || number >= 0) return wrong;
        return absl::StrCat("must be at least 0, not ", text);
      },
      "NONNEGATIVE");
}

}  // namespace atl::cli
