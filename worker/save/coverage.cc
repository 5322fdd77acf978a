#include "worker/save/coverage.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace atl::worker {

absl::Status Coverage::Add(absl::Span<const IndexRange> spans) {
  std::vector<IndexRange> all = covered_;
  all.insert(all.end(), spans.begin(), spans.end());
  std::sort(all.begin(), all.end(), [](IndexRange a, IndexRange b) {
    return a.begin < b.begin;
  });
  covered_.clear();
  for (const IndexRange span : all) {
    if (!covered_.empty() && span.begin < covered_.back().end) {
      return absl::DataLossError(absl::StrCat(
          "it has element ", span.begin, ", which another file also has"));
    }
    if (!covered_.empty() && span.begin == covered_.back().end) {
      covered_.back().end = span.end;
    } else {
      covered_.push_back(span);
    }
  }
  return absl::OkStatus();
}

absl::Status Coverage::Check(const HeldLayout& held) const {
  std::vector<std::string> missing;
  for (const IndexRange span : held.spans()) {
    int64_t at = span.begin;
    for (const IndexRange covered : covered_) {
      if (covered.end <= at || covered.begin >= span.end) continue;
      if (covered.begin > at) {
        missing.push_back(absl::StrCat("[", at, ", ", covered.begin, ")"));
      }
      at = std::max(at, covered.end);
    }
    if (at < span.end) {
      missing.push_back(absl::StrCat("[", at, ", ", span.end, ")"));
    }
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("no file has elements ",
                                          absl::StrJoin(missing, ", ")));
}

}  // namespace atl::worker
