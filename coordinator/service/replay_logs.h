// Replays a store's logs into a core that continues from them. Thread-safe.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/core/coordinator.h"
#include "coordinator/store/store.h"

namespace atl::coordinator {

struct Replayed {
  int64_t snapshot_count = 0;
  int64_t record_count = 0;
  // DATA_LOSS: snapshots or records that cannot be read back. The core has each
  // log up to the first of them.
  absl::Status damage;
};

// Requires: nothing was replayed into `coordinator` before.
//
// DATA_LOSS: a record does not follow the one before. Others: the store's.
absl::StatusOr<Replayed> ReplayLogs(const Store& store,
                                    Coordinator& coordinator);

}  // namespace atl::coordinator
