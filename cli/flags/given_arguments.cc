#include "cli/flags/given_arguments.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace atl::cli {

std::vector<std::string> GivenFlags(const CLI::App& command,
                                    const std::set<std::string>& left_out) {
  std::vector<std::string> flags;
  for (const CLI::App* app = &command; app != nullptr;
       app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      const std::vector<std::string>& names = option->get_lnames();
      if (names.empty() || option->count() == 0 ||
          std::any_of(names.begin(), names.end(), [&](const std::string& name) {
            return left_out.count(name) > 0;
          })) {
        continue;
      }
      const bool has_value = option->get_items_expected_max() > 0;
      for (const std::string& value : option->results()) {
        flags.push_back(has_value ? absl::StrCat("--", names[0], "=", value)
                                  : absl::StrCat("--", names[0]));
        if (!has_value) break;
      }
    }
  }
  return flags;
}

}  // namespace atl::cli
