#include "coordinator/service/replay_logs.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status/status_macros.h"

namespace atl::coordinator {
namespace {

constexpr int64_t kReplayPage = 1024;

absl::Status ReplayLog(const Store& store, const std::string& id,
                       Coordinator& coordinator, Replayed& replayed) {
  int64_t revision = 0;
  absl::StatusOr<std::optional<storage::v1::Snapshot>> snapshot =
      store.ReadSnapshot(id);
  if (absl::IsDataLoss(snapshot.status())) {
    replayed.damage.Update(snapshot.status());
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(snapshot.status());
  if (snapshot->has_value()) {
    revision = (*snapshot)->revision();
    RETURN_IF_ERROR(coordinator.Restore({id, **std::move(snapshot)}));
    ++replayed.snapshot_count;
  }
  int64_t page = kReplayPage;
  while (true) {
    const absl::StatusOr<std::vector<storage::v1::Record>> records =
        store.Scan(id, revision, page);
    if (absl::IsDataLoss(records.status())) {
      replayed.damage.Update(records.status());
      if (page == 1) return absl::OkStatus();
      page = 1;  // Up to the damaged record.
      continue;
    }
    RETURN_IF_ERROR(records.status());
    if (records->empty()) return absl::OkStatus();
    for (const storage::v1::Record& record : *records) {
      RETURN_IF_ERROR(coordinator.Replay({id, record}));
    }
    revision = records->back().revision();
    replayed.record_count += static_cast<int64_t>(records->size());
  }
}

}  // namespace

absl::StatusOr<Replayed> ReplayLogs(const Store& store,
                                    Coordinator& coordinator) {
  ASSIGN_OR_RETURN(const std::vector<std::string> ids, store.ListLogs());
  Replayed replayed;
  for (const std::string& id : ids) {
    RETURN_IF_ERROR(ReplayLog(store, id, coordinator, replayed));
  }
  return replayed;
}

}  // namespace atl::coordinator
