#include "base/layout/ids.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace atl {

absl::Status ValidateId(absl::string_view what, absl::string_view id) {
  bool valid = !id.empty() && id.size() <= 63;
  for (char c : id) {
    valid =
        valid && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-');
  }
  if (valid) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, what.empty() ? "" : " ", "\"",
                   absl::CEscape(id.substr(0, 80)),
                   "\" is not an id: use 1 to 63 of a-z, 0-9 and '-'"));
}

}  // namespace atl
