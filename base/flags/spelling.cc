#include "base/flags/spelling.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace atl::flags {

std::string FlagName(absl::string_view name) {
  return absl::StrCat("--", absl::StrReplaceAll(name, {{"_", "-"}}));
}

void SpellFlagsWithDashes(std::vector<std::string>& arguments) {
  for (std::string& argument : arguments) {
    if (argument == "--") return;
    if (!absl::StartsWith(argument, "--")) continue;
    std::replace(argument.begin(),
                 std::find(argument.begin(), argument.end(), '='), '_', '-');
  }
}

std::string WrapHelp(absl::string_view help, size_t text_column) {
  constexpr size_t kColumns = 80;
  std::string wrapped;
  for (absl::string_view line : absl::StrSplit(help, '\n')) {
    const size_t first = std::min(line.find_first_not_of(' '), line.size());
    const bool is_flag = first > 0 && line.size() > text_column &&
                         (first >= text_column || line[text_column - 1] == ' ');
    const std::string indent(is_flag ? text_column : first, ' ');
    std::string left(line);
    while (left.size() > kColumns) {
      size_t end = left.rfind(' ', kColumns);
      // A word that is longer than the line stays whole.
      if (end == left.npos || end < indent.size())
        end = left.find(' ', kColumns);
      if (end == left.npos) break;
      absl::StrAppend(&wrapped, left.substr(0, end), "\n");
      left = indent + left.substr(end + 1);
    }
    absl::StrAppend(&wrapped, left, "\n");
  }
  wrapped.pop_back();  // There is one line more than there are newlines.
  return wrapped;
}

}  // namespace atl::flags
