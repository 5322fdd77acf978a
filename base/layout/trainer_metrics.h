// The numbers that islands' own trainers report: means weighted by tokens.
//
// Pure. Thread-compatible.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace atl {

// A trainer's own numbers: names of [A-Za-z0-9_./-]{1,64}, at most this many.
inline constexpr size_t kTrainerMetricsMax = 32;
bool IsTrainerMetricName(absl::string_view name);

class WeightedMeans {
 public:
  // Adds `value` over `token_count` tokens; without tokens it counts as over
  // one. Drops values that are not finite, and names beyond kTrainerMetricsMax.
  void Add(const std::string& name, double value, int64_t token_count);
  template <typename Values>
  void AddAll(const Values& values, int64_t token_count) {
    for (const auto& [name, value] : values) Add(name, value, token_count);
  }

  // The means by name; all are finite.
  std::map<std::string, double> means() const;
  // The largest token count of any name; 0 without names.
  int64_t token_count() const;
  void Clear() { means_.clear(); }

 private:
  struct Mean {
    double value = 0;
    int64_t token_count = 0;
  };
  std::map<std::string, Mean> means_;
};

}  // namespace atl
