// Tables and numbers as text for people.
//
// Pure. Thread-compatible.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace atl::cli {

// Rows under a line of titles, columns two spaces apart:
//
//   RUN     STATE   ROUND
//   laptop  ACTIVE  12/30
class Table {
 public:
  // A title that begins with '>' makes its column right-aligned.
  explicit Table(std::vector<std::string> titles);

  // Adds a row. Missing cells are empty; surplus cells are dropped.
  void AddRow(std::vector<std::string> cells);

  bool empty() const { return rows_.empty(); }

  // The lines, each with a newline and no trailing spaces. Cells are Printable.
  std::string ToString() const;

 private:
  std::vector<std::string> titles_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// A list of "name  value" lines, the values in one column.
class Fields {
 public:
  void Add(absl::string_view name, absl::string_view value);
  // The same for a sentence. It wraps within the column, so that lines of short
  // words have at most 80 columns.
  void AddText(absl::string_view name, absl::string_view text);
  std::string ToString() const;

 private:
  struct Field {
    std::string name;
    std::string value;
    bool is_text = false;
  };
  std::vector<Field> fields_;
};

// Columns of text for people.
inline constexpr size_t kTextWidth = 80;

// `line`, which begins at column `begin` of a terminal, broken at spaces so
// that no line is longer than `columns`. Lines after the first begin with
// `indent` spaces. A longer word stays whole, and so does a command in
// backticks.
std::string Wrap(absl::string_view line, size_t begin, size_t indent,
                 size_t columns = kTextWidth);

// "512 B", "3.4 MB": powers of 1000.
std::string FormatBytes(int64_t byte_count);

// "8,431": groups of three.
std::string FormatCount(int64_t count);

// "1.3683", "1e+308", or "-" for a value that is not finite.
std::string FormatLoss(double loss);

// "2026-11-21T04:05:06Z"; empty for the epoch (a time that is not set).
std::string FormatTimestamp(absl::Time time);

// "42s", "3m05s", "2h07m"; from 100 hours "12 days", from 999 days
// "3.4 years"; "-" for a negative or infinite duration.
std::string FormatSpan(absl::Duration duration);

// `text` with '?' for each control character, mark of direction (bidi), line or
// paragraph separator, and byte that is not UTF-8: a peer may have written it.
std::string Printable(absl::string_view text);

}  // namespace atl::cli
