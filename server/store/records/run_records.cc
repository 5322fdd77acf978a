#include "server/store/records/run_records.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/failpoint/failpoint.h"
#include "base/status/status_macros.h"

namespace atl::server {
namespace {

constexpr absl::string_view kRunPrefix = "runs/";
constexpr int32_t kFormatNumber = 1;

}  // namespace

absl::StatusOr<std::vector<records::RunRecord>> ListRuns(
    const RecordStore& records) {
  ASSIGN_OR_RETURN(const std::vector<RecordStore::Record> found,
                   records.Scan(kRunPrefix));
  std::vector<records::RunRecord> runs;
  for (const RecordStore::Record& record : found) {
    records::RunRecord run;
    if (!run.ParseFromString(record.second) ||
        run.format_number() != kFormatNumber) {
      return absl::DataLossError(absl::StrCat(
          "record ", record.first, " is damaged or of another format"));
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

absl::Status CreateRun(RecordStore& records, const v1::Run& run, int32_t shard,
                       int32_t shard_count) {
  const std::string name = absl::StrCat(kRunPrefix, run.run_id(), "/", shard);
  const absl::StatusOr<std::string> existing = records.Get(name);
  if (existing.ok()) return absl::OkStatus();
  if (!absl::IsNotFound(existing.status())) return existing.status();
  records::RunRecord record;
  record.set_format_number(kFormatNumber);
  *record.mutable_run() = run;
  record.set_shard(shard);
  record.set_shard_count(shard_count);
  RecordBatch batch;
  batch.Put(name, record.SerializeAsString());
  failpoint::Hit("server.run.before");
  RETURN_IF_ERROR(records.Write(batch, Sync::kMachine));
  failpoint::Hit("server.run.after");
  return absl::OkStatus();
}

}  // namespace atl::server
