// What the check prints: one JSON object a line, and a last line of counts.
//
// Thread-compatible.

#ifndef WORKER_ENGINE_CUDA_CHECK_REPORT_H_
#define WORKER_ENGINE_CUDA_CHECK_REPORT_H_

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace atl::engine::check {

// `text` as a JSON string, with its quotes.
std::string JsonString(absl::string_view text);

class Report {
 public:
  // Writes to `out`, which outlives it.
  explicit Report(std::FILE* out) : out_(out) {}

  // {"check": `name`, "passed": true} or with the error's text.
  void Check(absl::string_view name, const absl::Status& status);
  // {"measure": `name`, ...} of keys and values as JSON.
  void Measure(absl::string_view name,
               const std::vector<std::pair<std::string, std::string>>& values);
  // A line that another process printed: counted, and handed on.
  void Relay(absl::string_view line);

  // "N passed, N failed".
  void PrintTotals();

  int passed() const { return passed_; }
  int failed() const { return failed_; }

 private:
  std::FILE* const out_;
  int passed_ = 0;
  int failed_ = 0;
};

}  // namespace atl::engine::check

#endif  // WORKER_ENGINE_CUDA_CHECK_REPORT_H_
