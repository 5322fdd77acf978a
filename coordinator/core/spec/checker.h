// Collects what is wrong with a run's spec. Pure. Thread-compatible.
//
// A field's path is given without "spec.". A value that is wrong adds one
// violation with a sentence.

#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status/refusal.h"
#include "google/protobuf/duration.pb.h"

namespace atl::coordinator {

class Checker {
 public:
  explicit Checker(std::vector<FieldViolation>& violations)
      : violations_(violations) {}

  void Require(bool holds, absl::string_view field,
               absl::string_view description) {
    if (holds) return;
    violations_.push_back(
        {absl::StrCat("spec", field.empty() ? "" : ".", field),
         std::string(description)});
  }

  void InRange(int64_t value, int64_t least, int64_t most,
               absl::string_view field) {
    Require(
        value >= least && value <= most, field,
        absl::StrCat("is ", value, "; must be in [", least, ", ", most, "]"));
  }

  void Rate(double value, absl::string_view field) {
    Require(value >= 0 && value < 1, field,
            absl::StrCat("is ", value, "; must be in [0, 1)"));
  }

  void Positive(double value, absl::string_view field) {
    Require(std::isfinite(value) && value > 0, field,
            absl::StrCat("is ", value, "; must be finite and greater than 0"));
  }

  void NotNegative(double value, absl::string_view field) {
    Require(std::isfinite(value) && value >= 0, field,
            absl::StrCat("is ", value, "; must be finite and at least 0"));
  }

  void Duration(const google::protobuf::Duration& value,
                absl::string_view field) {
    Require(value.seconds() >= 0 && value.seconds() <= kSecondsMax &&
                value.nanos() >= 0 && value.nanos() < 1000000000,
            field, "must be at least 0 and at most 30 days");
  }

  // The largest duration, in seconds. No sum or product of two overflows.
  static constexpr int64_t kSecondsMax = 30 * 24 * 3600;

 private:
  std::vector<FieldViolation>& violations_;
};

}  // namespace atl::coordinator
