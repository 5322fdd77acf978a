// The record that tells which shard of which run a store belongs to: `run`.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "atoll/v1/run.pb.h"
#include "server/store/records/record_store.h"
#include "server/store/records/server_records.pb.h"

namespace atl::server {

inline constexpr char kRunRecordName[] = "run";

// NOT_FOUND: there is none. DATA_LOSS: it is damaged, or of another format.
absl::StatusOr<records::RunRecord> ReadRun(const RecordStore& records);

// Writes the record of a new shard, durably. Does nothing if there is one.
absl::Status CreateRun(RecordStore& records, const v1::Run& run, int32_t shard,
                       int32_t shard_count);

}  // namespace atl::server
