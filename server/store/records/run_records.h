// The records that name the shards of a server: runs/RUN/SHARD.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "atoll/v1/run.pb.h"
#include "server/store/records/record_store.h"
#include "server/store/records/server_records.pb.h"

namespace atl::server {

// In the order of runs, then of shards.
//
// DATA_LOSS: a record is damaged, or of another format.
absl::StatusOr<std::vector<records::RunRecord>> ListRuns(
    const RecordStore& records);

// Writes the record of a new shard, durably. Does nothing if there is one.
absl::Status CreateRun(RecordStore& records, const v1::Run& run, int32_t shard,
                       int32_t shard_count);

}  // namespace atl::server
