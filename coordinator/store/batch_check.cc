#include "coordinator/store/batch_check.h"

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"

namespace atl::coordinator {

absl::StatusOr<std::map<std::string, int64_t>> RevisionsAfter(
    const Batch& batch,
    const std::function<absl::StatusOr<int64_t>(const std::string& run_id)>&
        newest) {
  std::map<std::string, int64_t> revisions;
  const auto revision_of =
      [&](const std::string& run_id) -> absl::StatusOr<int64_t*> {
    const auto known = revisions.find(run_id);
    if (known != revisions.end()) return &known->second;
    ASSIGN_OR_RETURN(revisions[run_id], newest(run_id));
    return &revisions[run_id];
  };
  for (const std::string& run_id : batch.deleted_runs) {
    if (run_id.empty()) {
      return absl::InvalidArgumentError(
          "the coordinator's own log cannot be deleted");
    }
    revisions[run_id] = 0;
  }
  for (const LogEntry& entry : batch.entries) {
    ASSIGN_OR_RETURN(int64_t* const revision, revision_of(entry.run_id));
    if (entry.record.revision() != ++*revision) {
      return absl::InvalidArgumentError(
          absl::StrCat("record ", entry.record.revision(), " of run \"",
                       entry.run_id, "\" does not follow"));
    }
  }
  for (const LogSnapshot& taken : batch.snapshots) {
    ASSIGN_OR_RETURN(int64_t* const revision, revision_of(taken.run_id));
    if (taken.snapshot.revision() != *revision ||
        taken.snapshot.compacted_revision() < 0 ||
        taken.snapshot.compacted_revision() >= *revision) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a snapshot of record ", taken.snapshot.revision(), " of run \"",
          taken.run_id, "\" that deletes those up to ",
          taken.snapshot.compacted_revision(),
          " does not fit a log that ends with ", *revision));
    }
  }
  return revisions;
}

absl::Status Compacted(const std::string& run_id, int64_t compacted_revision) {
  return absl::OutOfRangeError(
      absl::StrCat("the records of run \"", run_id, "\" up to revision ",
                   compacted_revision, " are compacted"));
}

}  // namespace atl::coordinator
