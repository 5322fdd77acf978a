// Prints one JSON object a line, then a line with totals. Thread-compatible.

#pragma once

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace atl::engine::check {

// `text` as a quoted JSON string.
std::string JsonString(absl::string_view text);

class Report {
 public:
  explicit Report(std::FILE* out) : out_(out) {}

  // Prints {"begin": `name`}, so that a hang has a name, then runs the check
  // and prints {"check": `name`, "passed": true}, or false with the error's
  // text, and its "seconds". Returns true if it passed.
  bool Check(absl::string_view name, absl::FunctionRef<absl::Status()> run);
  // The same for what has been done already.
  void Check(absl::string_view name, const absl::Status& status);
  // As Check, for a control: instead of "passed": false an error is
  // "state": "not possible on one GPU".
  bool Control(absl::string_view name, absl::FunctionRef<absl::Status()> run);
  void Control(absl::string_view name, const absl::Status& status);
  // Prints {"measure": `name`, ...}. The values are JSON already.
  void Measure(absl::string_view name,
               const std::vector<std::pair<std::string, std::string>>& values);
  // Counts and prints a line from another process.
  void Relay(absl::string_view line);

  void PrintTotals();

  int passed() const { return passed_; }
  int failed() const { return failed_; }
  int not_possible() const { return not_possible_; }

 private:
  bool RunNamed(absl::string_view name, absl::string_view failure,
                absl::FunctionRef<absl::Status()> run);
  // `failure`: what an error is.
  void RelayResult(absl::string_view name, absl::string_view failure,
                   const absl::Status& status, absl::string_view more);

  std::FILE* const out_;
  int passed_ = 0;
  int failed_ = 0;
  int not_possible_ = 0;
};

}  // namespace atl::engine::check
