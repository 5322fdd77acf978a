#include "base/obs/flags.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace atl {

std::string FlagName(absl::string_view name) {
  return absl::StrCat("--", absl::StrReplaceAll(name, {{"_", "-"}}));
}

void SpellFlagsWithDashes(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    char* at = argv[i];
    if (at[0] != '-' || at[1] != '-') continue;
    if (at[2] == '\0') return;
    for (; *at != '\0' && *at != '='; ++at) {
      if (*at == '_') *at = '-';
    }
  }
}

}  // namespace atl
