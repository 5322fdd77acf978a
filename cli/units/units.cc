#include "cli/units/units.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "cli/output/error.h"

namespace atl::cli {
namespace {

// Takes the number at the start of `text`: digits and at most one point.
bool TakeNumber(absl::string_view* text, double* number) {
  size_t length = 0;
  bool point = false, digit = false;
  for (; length < text->size(); ++length) {
    const char c = (*text)[length];
    if (absl::ascii_isdigit(c)) {
      digit = true;
    } else if (c == '.' && !point) {
      point = true;
    } else {
      break;
    }
  }
  if (!digit || !absl::SimpleAtod(text->substr(0, length), number)) {
    return false;
  }
  text->remove_prefix(length);
  return std::isfinite(*number);
}

// Takes one of `letters` from `text`: the i-th, from 0, is 1000^(i + 1).
// Returns 1 if `text` begins with none of them.
double TakeScale(absl::string_view letters, absl::string_view* text) {
  if (text->empty()) return 1;
  const size_t power = letters.find(text->front());
  if (power == absl::string_view::npos) return 1;
  text->remove_prefix(1);
  return std::pow(1000.0, static_cast<double>(power + 1));
}

// Formats `value` as three digits and the letter of its power of 1000.
std::string Scaled(double value, absl::string_view letters) {
  size_t power = 0;
  while (value >= 999.5 && power < letters.size()) {
    value /= 1000;
    ++power;
  }
  return absl::StrCat(
      absl::StrFormat("%.3g", value), power > 0 ? " " : "",
      power > 0 ? std::string(1, letters[power - 1]) : std::string());
}

}  // namespace

absl::StatusOr<double> ParseBandwidth(absl::string_view text) {
  absl::string_view rest = text;
  double number = 0;
  const auto wrong = [&] {
    return UsageError(
        absl::StrCat("'", text, "' is not a bandwidth"),
        "Write a positive number and b/s, kb/s, Mb/s, Gb/s or Tb/s (bits), or "
        "B/s, kB/s, MB/s, GB/s or TB/s (bytes), e.g. 20Mb/s.");
  };
  if (!TakeNumber(&rest, &number)) return wrong();
  const double scale = TakeScale("kMGT", &rest);
  double bits = 0;
  if (rest == "b/s") {
    bits = 1;
  } else if (rest == "B/s") {
    bits = 8;
  } else {
    return wrong();
  }
  if (!(number > 0)) return wrong();
  return number * scale * bits / 8;
}

absl::StatusOr<double> ParseSeconds(absl::string_view text) {
  absl::Duration duration;
  const bool has_unit = !text.empty() && absl::ascii_isalpha(text.back());
  if (!has_unit || !absl::ParseDuration(std::string(text), &duration) ||
      duration < absl::ZeroDuration() || duration == absl::InfiniteDuration()) {
    return UsageError(
        absl::StrCat("'", text, "' is not a duration"),
        "Write a number and us, ms, s, m or h, e.g. 40ms or 1.5s.");
  }
  return absl::ToDoubleSeconds(duration);
}

absl::StatusOr<absl::Duration> ParsePatience(const std::string& text) {
  absl::Duration patience;
  if (!absl::ParseDuration(text, &patience) ||
      patience <= absl::ZeroDuration()) {
    return UsageError("--patience must be a positive duration, e.g. 30s or 5m");
  }
  return patience;
}

absl::StatusOr<int64_t> ParseCount(absl::string_view text) {
  absl::string_view rest = text;
  double number = 0;
  if (TakeNumber(&rest, &number)) {
    const double count = number * TakeScale("kMBT", &rest);
    if (rest.empty() && count >= 1 && count <= 1e15) {
      return std::llround(count);
    }
  }
  return UsageError(
      absl::StrCat("'", text, "' is not a count"),
      "Write a number from 1 to 1000T, with k, M, B or T, e.g. 1.2B.");
}

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  absl::string_view rest = text;
  double number = 0;
  if (TakeNumber(&rest, &number)) {
    const double bytes = number * TakeScale("kMGT", &rest);
    if (rest == "B" && bytes >= 1 && bytes <= 1e18) return std::llround(bytes);
  }
  return UsageError(absl::StrCat("'", text, "' is not a size in bytes"),
                    "Write a number and B, kB, MB, GB or TB, e.g. 20GB.");
}

bool LooksLikeCount(absl::string_view text) {
  double number = 0;
  absl::string_view rest = absl::StripPrefix(text, "-");
  return TakeNumber(&rest, &number) &&
         rest.find_first_of("/-_") == absl::string_view::npos;
}

std::string FormatBandwidth(double bytes_per_second) {
  const std::string scaled = Scaled(8 * bytes_per_second, "kMGTP");
  const bool has_letter = absl::ascii_isalpha(scaled.back());
  return absl::StrCat(scaled, has_letter ? "b/s" : " b/s");
}

std::string FormatSize(int64_t count) {
  std::string text = Scaled(static_cast<double>(count), "kMBT");
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  return text;
}

}  // namespace atl::cli
