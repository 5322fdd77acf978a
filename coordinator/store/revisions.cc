#include "coordinator/store/revisions.h"

#include "absl/strings/str_cat.h"

namespace atl::coordinator {

int64_t Revisions::Last(absl::string_view run_id) const {
  const auto found = last_.find(run_id);
  return found == last_.end() ? 0 : found->second;
}

void Revisions::Set(absl::string_view run_id, int64_t revision) {
  last_[std::string(run_id)] = revision;
}

absl::Status Revisions::Check(absl::Span<const LogAppend> appends) const {
  Revisions after;
  for (const LogAppend& append : appends) {
    int64_t last = std::max(Last(append.run_id), after.Last(append.run_id));
    for (const storage::v1::Record& record : append.records) {
      if (record.revision() != last + 1) {
        return absl::InternalError(
            absl::StrCat("record ", record.revision(), " of run \"",
                         append.run_id, "\" does not follow record ", last));
      }
      ++last;
    }
    after.Set(append.run_id, last);
  }
  return absl::OkStatus();
}

void Revisions::Advance(absl::Span<const LogAppend> appends) {
  for (const LogAppend& append : appends) {
    if (append.records.empty()) continue;
    Set(append.run_id, append.records.back().revision());
  }
}

}  // namespace atl::coordinator
