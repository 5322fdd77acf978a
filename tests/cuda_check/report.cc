#include "tests/cuda_check/report.h"

#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace atl::engine::check {
namespace {

constexpr absl::string_view kPassed = "\"passed\": true";
constexpr absl::string_view kFailed = "\"passed\": false";
constexpr absl::string_view kNotPossible =
    "\"state\": \"not possible on one GPU\"";

}  // namespace

std::string JsonString(absl::string_view text) {
  std::string json = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&json, "\\u%04x", static_cast<unsigned>(c));
    } else {
      json += c;
    }
  }
  json += '"';
  return json;
}

bool Report::Check(absl::string_view name,
                   absl::FunctionRef<absl::Status()> run) {
  return RunNamed(name, kFailed, run);
}

void Report::Check(absl::string_view name, const absl::Status& status) {
  RelayResult(name, kFailed, status, "");
}

bool Report::Control(absl::string_view name,
                     absl::FunctionRef<absl::Status()> run) {
  return RunNamed(name, kNotPossible, run);
}

void Report::Control(absl::string_view name, const absl::Status& status) {
  RelayResult(name, kNotPossible, status, "");
}

bool Report::RunNamed(absl::string_view name, absl::string_view failure,
                      absl::FunctionRef<absl::Status()> run) {
  Relay(absl::StrCat("{\"begin\": ", JsonString(name), "}"));
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = run();
  const std::chrono::duration<double> spent =
      std::chrono::steady_clock::now() - start;
  RelayResult(name, failure, status,
              absl::StrFormat(", \"seconds\": %.3f", spent.count()));
  return status.ok();
}

void Report::RelayResult(absl::string_view name, absl::string_view failure,
                         const absl::Status& status, absl::string_view more) {
  std::string line = absl::StrCat("{\"check\": ", JsonString(name), ", ",
                                  status.ok() ? kPassed : failure);
  if (!status.ok()) {
    absl::StrAppend(&line, ", \"error\": ", JsonString(status.ToString()));
  }
  Relay(absl::StrCat(line, more, "}"));
}

void Report::Measure(
    absl::string_view name,
    const std::vector<std::pair<std::string, std::string>>& values) {
  std::string line = absl::StrCat("{\"measure\": ", JsonString(name));
  for (const auto& [key, value] : values) {
    absl::StrAppend(&line, ", ", JsonString(key), ": ", value);
  }
  Relay(absl::StrCat(line, "}"));
}

void Report::Relay(absl::string_view line) {
  if (absl::StrContains(line, kPassed)) ++passed_;
  if (absl::StrContains(line, kFailed)) ++failed_;
  if (absl::StrContains(line, kNotPossible)) ++not_possible_;
  std::fprintf(out_, "%.*s\n", static_cast<int>(line.size()), line.data());
  std::fflush(out_);
}

void Report::PrintTotals() {
  std::fprintf(out_, "%d passed, %d failed\n", passed_, failed_);
  std::fflush(out_);
}

}  // namespace atl::engine::check
