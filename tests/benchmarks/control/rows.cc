#include "tests/benchmarks/control/rows.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace atl::benchmarks {

Row& Row::Add(const std::string& name, absl::string_view text) {
  fields_.emplace_back(name, absl::StrCat("\"", text, "\""));
  return *this;
}

Row& Row::Add(const std::string& name, bool value) {
  fields_.emplace_back(name, value ? "true" : "false");
  return *this;
}

Row& Row::Add(const std::string& name, int64_t value) {
  fields_.emplace_back(name, absl::StrCat(value));
  return *this;
}

Row& Row::Add(const std::string& name, double value) {
  fields_.emplace_back(
      name, std::isfinite(value) ? absl::StrFormat("%.3f", value) : "null");
  return *this;
}

Row& Row::Add(const std::string& name, const std::optional<double>& value) {
  return Add(name, value.value_or(std::nan("")));
}

std::string Row::ToJson() const {
  return absl::StrCat(
      "{",
      absl::StrJoin(fields_, ", ",
                    [](std::string* out, const auto& field) {
                      absl::StrAppend(out, "\"", field.first,
                                      "\": ", field.second);
                    }),
      "}");
}

std::string Row::ToText() const {
  return absl::StrJoin(fields_, "  ", absl::PairFormatter(" "));
}

std::optional<double> FindExponent(const std::vector<Cost>& costs) {
  std::map<std::string, std::vector<std::pair<double, double>>> groups;
  for (const Cost& cost : costs) {
    if (cost.value <= 0 || cost.islands <= 0) continue;
    groups[cost.group].emplace_back(std::log(cost.islands),
                                    std::log(cost.value));
  }
  double slopes = 0;
  int count = 0;
  for (const auto& [group, points] : groups) {
    double x = 0;
    double y = 0;
    for (const auto& [a, b] : points) {
      x += a / static_cast<double>(points.size());
      y += b / static_cast<double>(points.size());
    }
    double xx = 0;
    double xy = 0;
    for (const auto& [a, b] : points) {
      xx += (a - x) * (a - x);
      xy += (a - x) * (b - y);
    }
    if (xx < 1e-9) continue;
    slopes += xy / xx;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return slopes / count;
}

double Quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const auto index = std::min(
      values.size() - 1,
      static_cast<size_t>(part * static_cast<double>(values.size())));
  std::nth_element(values.begin(),
                   values.begin() + static_cast<std::ptrdiff_t>(index),
                   values.end());
  return values[index];
}

}  // namespace atl::benchmarks
