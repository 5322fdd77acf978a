#include "base/layout/ids.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status/refusal.h"

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

absl::Status CheckId(absl::string_view field, absl::string_view id) {
  const absl::Status status = ValidateId("", id);
  if (status.ok()) return status;
  return InvalidFields({{std::string(field), std::string(status.message())}});
}

}  // namespace atl
