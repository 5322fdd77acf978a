#include "coordinator/core/verdict/contributions_max.h"

#include "base/layout/gram.h"
#include "base/layout/merge_groups.h"
#include "coordinator/core/verdict/verdict_rule.h"

namespace atl::coordinator {

int64_t ContributionsMax(const RunLayout& layout, const v1::RunSpec& spec) {
  if (MakeVerdictRule(spec.outer().merge()) == nullptr) return INT64_MAX;
  int64_t group_count = 0;
  for (int32_t f = 0; f < layout.fragment_count(); ++f) {
    group_count += MergeGroups(layout, spec, f).count();
  }
  int count = kVerdictContributionsMax;
  while (count > 1 &&
         group_count * GramMatrix::EntryCount(count) * GramMatrix::kEntryBytes >
             kStatisticsBytesMax) {
    --count;
  }
  return count;
}

}  // namespace atl::coordinator
