// The benchmark's output: one JSON object a line, or text. Pure.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace atl::benchmarks {

class Row {
 public:
  Row& Add(const std::string& name, absl::string_view text);
  Row& Add(const std::string& name, const char* text) {
    return Add(name, absl::string_view(text));
  }
  Row& Add(const std::string& name, bool value);
  Row& Add(const std::string& name, int value) {
    return Add(name, static_cast<int64_t>(value));
  }
  Row& Add(const std::string& name, int64_t value);
  Row& Add(const std::string& name, double value);  // Three decimals.
  Row& Add(const std::string& name, const std::optional<double>& value);

  std::string ToJson() const;
  std::string ToText() const;

 private:
  std::vector<std::pair<std::string, std::string>> fields_;  // JSON values.
};

// The cost with a number of islands. Rows with one `group` differ in nothing else.
struct Cost {
  std::string group;
  double islands = 1;
  double value = 0;
};

// The slope of log(value) over log(islands), by least squares within each
// group, as the mean over the groups. Not set without a group of two numbers
// of islands. Costs that are not positive do not count.
std::optional<double> FindExponent(const std::vector<Cost>& costs);

// The value below which `part` of `values` are; 0: there are none.
double Quantile(std::vector<double> values, double part);

}  // namespace atl::benchmarks
