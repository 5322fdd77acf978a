#include "coordinator/service/init_log.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/io/posix_file_system.h"
#include "base/io/private_directory.h"
#include "base/random_id/random_id.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "coordinator/core/coordinator.h"
#include "coordinator/service/log_secret.h"
#include "coordinator/store/rocksdb_store.h"

namespace atl::coordinator {
namespace {

// Writes the secret, unless the file has it already, and notes that there is a
// copy.
absl::Status ExportSecret(const InitSpec& spec, const std::string& secret) {
  absl::Status written = WriteSecretFile(spec.secret_file, secret);
  if (absl::IsAlreadyExists(written)) {
    const absl::StatusOr<std::string> found = ReadSecretFile(spec.secret_file);
    if (!found.ok() || *found != secret) {
      return absl::AlreadyExistsError(absl::StrCat(
          spec.secret_file, " exists, and does not hold the secret of the log "
          "in ", spec.data_dir, ": give another --secret-file"));
    }
    written = absl::OkStatus();
  }
  RETURN_IF_ERROR(Annotate(written, "--secret-file"));
  return MarkSecretExported(spec.data_dir);
}

// The answer of `init` for a directory with a log.
absl::StatusOr<InitResult> Found(const InitSpec& spec, const Store& store) {
  InitResult result;
  const absl::StatusOr<LogOwner> owner = ReadLogOwner(store);
  if (owner.ok()) result.cluster_id = owner->cluster_id;
  if (!spec.if_empty) {
    return absl::AlreadyExistsError(absl::StrCat(
        spec.data_dir, " has a log, which stays. It is of cluster\n  ",
        result.cluster_id.empty() ? "(unknown)" : result.cluster_id,
        "\nStart it:\n  atoll-coordinator --data-dir ", spec.data_dir,
        spec.secret_file.empty()
            ? ""
            : absl::StrCat("\nWrite its secret:\n  atoll-coordinator secret "
                           "--data-dir ", spec.data_dir, " --output ",
                           spec.secret_file)));
  }
  if (spec.secret_file.empty()) return result;
  ASSIGN_OR_RETURN(const std::string secret, ReadLogSecret(spec.data_dir));
  RETURN_IF_ERROR(ExportSecret(spec, secret));
  return result;
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
  if (!spec.secret_file.empty() &&
      PosixFileSystem().Exists(spec.secret_file)) {
    return absl::AlreadyExistsError(absl::StrCat(
        spec.secret_file, " exists, and ", spec.data_dir,
        " has no log. If it is the secret of a log that is lost, restore that "
        "log:\n  atoll-coordinator restore --help\nFor a new cluster, give "
        "another --secret-file."));
  }
  RETURN_IF_ERROR(Annotate(PrepareDataDirectory(spec.data_dir), "--data-dir"));
  ASSIGN_OR_RETURN(const std::unique_ptr<RocksDbStore> store,
                   RocksDbStore::Create(spec.data_dir));
  const absl::Time now = clock.Now();
  InitResult result;
  result.made = true;
  result.cluster_id = spec.cluster_id.empty() ? RandomId() : spec.cluster_id;
  Coordinator first{CoordinatorOptions()};
  const std::string secret = RandomId();
  first.Start(now, {result.cluster_id, RandomId(), secret}, store->index());
  RETURN_IF_ERROR(store->Append(first.TakeEffects(now).batch));
  if (!spec.secret_file.empty()) RETURN_IF_ERROR(ExportSecret(spec, secret));
  return result;
}

}  // namespace atl::coordinator
