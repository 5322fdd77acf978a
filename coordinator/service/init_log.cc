#include "coordinator/service/init_log.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/io/private_directory.h"
#include "base/random_id/random_id.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "coordinator/core/coordinator.h"
#include "coordinator/store/rocksdb_store.h"

namespace atl::coordinator {
namespace {

constexpr int64_t kPage = 1024;

// Empty if the log has none.
absl::StatusOr<std::string> ReadClusterId(const Store& store) {
  ASSIGN_OR_RETURN(const std::optional<storage::v1::Snapshot> snapshot,
                   store.ReadSnapshot(""));
  int64_t revision = 0;
  if (snapshot.has_value()) {
    revision = snapshot->revision();
    for (const auto& start : snapshot->coordinator().starts()) {
      if (!start.cluster_id().empty()) return start.cluster_id();
    }
  }
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<storage::v1::Record> records,
                     store.Scan("", revision, kPage));
    if (records.empty()) return std::string();
    for (const storage::v1::Record& record : records) {
      const std::string& id = record.coordinator_started().cluster_id();
      if (!id.empty()) return id;
    }
    revision = records.back().revision();
  }
}

// The answer of `init` for a directory with a log.
absl::StatusOr<InitResult> Found(const InitSpec& spec, const Store& store) {
  InitResult result;
  const absl::StatusOr<std::string> id = ReadClusterId(store);
  if (id.ok()) result.cluster_id = *id;
  if (spec.if_empty) return result;
  return absl::AlreadyExistsError(absl::StrCat(
      spec.data_dir, " has a log, which stays. It is of cluster\n  ",
      result.cluster_id.empty() ? "(unknown)" : result.cluster_id,
      "\nStart it:\n  atoll-coordinator --data-dir ", spec.data_dir));
}

}  // namespace

absl::StatusOr<InitResult> InitLog(const InitSpec& spec, const Clock& clock) {
  if (!spec.cluster_id.empty() && !IsRandomId(spec.cluster_id)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--cluster-id \"", spec.cluster_id,
                     "\" must be 32 lower-case hex digits"));
  }
  if (const auto there = RocksDbStore::OpenToRead(spec.data_dir); there.ok()) {
    return Found(spec, **there);
  }
  RETURN_IF_ERROR(Annotate(PrepareDataDirectory(spec.data_dir), "--data-dir"));
  ASSIGN_OR_RETURN(const std::unique_ptr<RocksDbStore> store,
                   RocksDbStore::Create(spec.data_dir));
  const absl::Time now = clock.Now();
  InitResult result;
  result.made = true;
  result.cluster_id = spec.cluster_id.empty() ? RandomId() : spec.cluster_id;
  Coordinator first{CoordinatorOptions()};
  first.Start(now, {result.cluster_id, RandomId(), RandomId()}, store->index());
  RETURN_IF_ERROR(store->Append(first.TakeEffects(now).batch));
  return result;
}

}  // namespace atl::coordinator
