#include "cli/output/table.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status/valid_utf8.h"

namespace atl::cli {
namespace {

// True if `c` continues a character of UTF-8.
bool Continues(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// The width of `text` on a terminal: one column per code point.
size_t Width(absl::string_view text) {
  return text.size() - std::count_if(text.begin(), text.end(), Continues);
}

// The words of `line`: what is between two spaces, or a command in backticks.
std::vector<absl::string_view> SplitWords(absl::string_view line) {
  std::vector<absl::string_view> words;
  size_t begin = 0;
  for (size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '`') {
      const size_t end = line.find('`', at + 1);
      if (end != absl::string_view::npos) at = end;
    } else if (line[at] == ' ') {
      words.push_back(line.substr(begin, at - begin));
      begin = at + 1;
    }
  }
  words.push_back(line.substr(begin));
  return words;
}

void AppendLine(const std::vector<std::string>& cells,
                const std::vector<size_t>& widths,
                const std::vector<bool>& right, std::string* out) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += "  ";
    const std::string pad(widths[i] - Width(cells[i]), ' ');
    absl::StrAppend(&line, right[i] ? pad : "", cells[i], right[i] ? "" : pad);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  absl::StrAppend(out, line, "\n");
}

}  // namespace

Table::Table(std::vector<std::string> titles) : titles_(std::move(titles)) {
  for (std::string& title : titles_) {
    right_.push_back(!title.empty() && title[0] == '>');
    if (right_.back()) title.erase(0, 1);
  }
}

void Table::AddRow(std::vector<std::string> cells) {
  cells.resize(titles_.size());
  for (std::string& cell : cells) cell = Printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::ToString() const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < titles_.size(); ++i) {
    widths.push_back(Width(titles_[i]));
    for (const auto& row : rows_) {
      widths[i] = std::max(widths[i], Width(row[i]));
    }
  }
  std::string out;
  AppendLine(titles_, widths, right_, &out);
  for (const auto& row : rows_) AppendLine(row, widths, right_, &out);
  return out;
}

void Fields::Add(absl::string_view name, absl::string_view value) {
  fields_.push_back({std::string(name), Printable(value), /*is_text=*/false});
}

void Fields::AddText(absl::string_view name, absl::string_view text) {
  fields_.push_back({std::string(name), Printable(text), /*is_text=*/true});
}

std::string Fields::ToString() const {
  size_t width = 0;
  for (const Field& field : fields_) width = std::max(width, Width(field.name));
  const std::string indent(width + 2, ' ');
  std::string out;
  for (const Field& field : fields_) {
    absl::StrAppend(&out, field.name, indent.substr(Width(field.name)),
                    field.is_text
                        ? Wrap(field.value, indent.size(), indent.size())
                        : field.value,
                    "\n");
  }
  return out;
}

std::string Wrap(absl::string_view line, size_t begin, size_t indent,
                 size_t columns) {
  std::string out;
  size_t column = begin;
  bool is_first = true;  // The word begins its line.
  for (const absl::string_view word : SplitWords(line)) {
    if (!is_first && column + 1 + Width(word) > columns) {
      absl::StrAppend(&out, "\n", std::string(indent, ' '), word);
      column = indent + Width(word);
      continue;
    }
    absl::StrAppend(&out, is_first ? "" : " ", word);
    column += Width(word) + (is_first ? 0 : 1);
    is_first = false;
  }
  return out;
}

std::string FormatBytes(int64_t byte_count) {
  static constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  if (byte_count > -1000 && byte_count < 1000) {
    return absl::StrCat(byte_count, " B");
  }
  double value = static_cast<double>(byte_count) / 1000;
  int unit = 0;
  while (std::fabs(value) >= 999.95 && unit < 5) {
    value /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string FormatCount(int64_t count) {
  std::string digits = absl::StrCat(count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

std::string FormatLoss(double loss) {
  if (!std::isfinite(loss)) return "-";
  return std::fabs(loss) < 1e6 ? absl::StrFormat("%.4f", loss)
                               : absl::StrFormat("%.4g", loss);
}

std::string FormatTimestamp(absl::Time time) {
  if (time == absl::UnixEpoch()) return "";
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%SZ", time, absl::UTCTimeZone());
}

namespace {

// Three digits and no exponent below ten thousand years.
std::string FormatYears(double years) {
  return years < 1000 ? absl::StrFormat("%.3g years", years)
                      : absl::StrFormat("%.0f years", years);
}

}  // namespace

std::string FormatSpan(absl::Duration duration) {
  if (duration < absl::ZeroDuration() || duration == absl::InfiniteDuration()) {
    return "-";
  }
  const int64_t seconds = absl::ToInt64Seconds(duration);
  if (seconds < 60) return absl::StrCat(seconds, "s");
  if (seconds < 3600) {
    return absl::StrFormat("%dm%02ds", seconds / 60, seconds % 60);
  }
  const int64_t hours = seconds / 3600;
  if (hours < 100) return absl::StrFormat("%dh%02dm", hours, seconds / 60 % 60);
  const double days = static_cast<double>(hours) / 24;
  if (days < 999) return absl::StrFormat("%.3g days", days);
  return FormatYears(days / 365.25);
}

std::string Printable(absl::string_view text) {
  // UTF-8 sorts as its code points do.
  static constexpr std::pair<absl::string_view, absl::string_view> kReplaced[] =
      {{"", "\x1F"},
       {"\x7F", "\u009F"},
       {"\u200E", "\u200F"},
       {"\u2028", "\u202E"},
       {"\u2066", "\u2069"}};
  const std::string valid = ToValidUtf8(text);
  std::string result;
  for (size_t at = 0, end; at < valid.size(); at = end) {
    for (end = at + 1; end < valid.size() && Continues(valid[end]);) ++end;
    const absl::string_view character(&valid[at], end - at);
    const bool is_replaced = std::any_of(
        std::begin(kReplaced), std::end(kReplaced), [&](const auto& range) {
          return range.first <= character && character <= range.second;
        });
    absl::StrAppend(&result, is_replaced ? "?" : character);
  }
  return result;
}

}  // namespace atl::cli
