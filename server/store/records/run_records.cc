#include "server/store/records/run_records.h"

#include "base/failpoint/failpoint.h"
#include "base/status/status_macros.h"

namespace atl::server {
namespace {

constexpr int32_t kFormatNumber = 1;

}  // namespace

absl::StatusOr<records::RunRecord> ReadRun(const RecordStore& records) {
  ASSIGN_OR_RETURN(const std::string value, records.Get(kRunRecordName));
  records::RunRecord run;
  if (!run.ParseFromString(value) || run.format_number() != kFormatNumber) {
    return absl::DataLossError("record run is damaged or of another format");
  }
  return run;
}

absl::Status CreateRun(RecordStore& records, const v1::Run& run, int32_t shard,
                       int32_t shard_count) {
  const absl::StatusOr<std::string> existing = records.Get(kRunRecordName);
  if (existing.ok()) return absl::OkStatus();
  if (!absl::IsNotFound(existing.status())) return existing.status();
  records::RunRecord record;
  record.set_format_number(kFormatNumber);
  *record.mutable_run() = run;
  record.set_shard(shard);
  record.set_shard_count(shard_count);
  RecordBatch batch;
  batch.Put(kRunRecordName, record.SerializeAsString());
  failpoint::Hit("server.run.before");
  RETURN_IF_ERROR(records.Write(batch, Sync::kMachine));
  failpoint::Hit("server.run.after");
  return absl::OkStatus();
}

}  // namespace atl::server
