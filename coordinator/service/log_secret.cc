#include "coordinator/service/log_secret.h"

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/io/new_file.h"
#include "base/io/posix_file_system.h"
#include "base/layout/ids.h"
#include "base/status/status_macros.h"
#include "coordinator/store/log_directory.h"
#include "coordinator/store/rocksdb_store.h"

namespace atl::coordinator {
namespace {

constexpr int64_t kPage = 1024;
constexpr size_t kSecretBytesMin = 32;
constexpr size_t kSecretBytesMax = 128;
constexpr int64_t kFileBytesMax = 4096;

// Lower-case hex digits, as logs of all programs have them.
bool IsSecret(absl::string_view text) {
  return text.size() >= kSecretBytesMin && text.size() <= kSecretBytesMax &&
         IsLowerHex(text, text.size());
}

void Take(const storage::v1::CoordinatorStarted& start, LogOwner& owner) {
  if (start.cluster_id().empty()) return;
  owner.cluster_id = start.cluster_id();
  owner.secret = start.log_secret();
}

std::string MarkPath(const std::string& data_dir) {
  return absl::StrCat(data_dir, "/", kSecretExportedName);
}

}  // namespace

absl::StatusOr<LogOwner> ReadLogOwner(const Store& store) {
  LogOwner owner;
  ASSIGN_OR_RETURN(const std::optional<storage::v1::Snapshot> snapshot,
                   store.ReadSnapshot(""));
  int64_t revision = 0;
  if (snapshot.has_value()) {
    revision = snapshot->revision();
    for (const auto& start : snapshot->coordinator().starts()) {
      Take(start, owner);
    }
  }
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<storage::v1::Record> records,
                     store.Scan("", revision, kPage));
    if (records.empty()) return owner;
    for (const storage::v1::Record& record : records) {
      Take(record.coordinator_started(), owner);
    }
    revision = records.back().revision();
  }
}

absl::StatusOr<std::string> ReadLogSecret(const std::string& data_dir) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RocksDbStore> store,
                   RocksDbStore::OpenToRead(data_dir));
  ASSIGN_OR_RETURN(LogOwner owner, ReadLogOwner(*store));
  if (!owner.secret.empty()) return std::move(owner.secret);
  return absl::FailedPreconditionError(absl::StrCat(
      "the log in ", data_dir,
      " has no secret: no coordinator that makes one has started on it"));
}

absl::StatusOr<std::string> ReadSecretFile(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text,
                   ReadFile(PosixFileSystem(), path, kFileBytesMax));
  absl::StripAsciiWhitespace(&text);
  if (IsSecret(text)) return text;
  return absl::InvalidArgumentError(absl::StrCat(
      path, " holds no secret of a coordinator's log: it must be one line of ",
      kSecretBytesMin, " or more lower-case hex digits, as "
      "`atoll-coordinator secret` writes it"));
}

absl::Status WriteSecretFile(const std::string& path,
                             absl::string_view secret) {
  const absl::Status written =
      WriteNewFile(path, absl::StrCat(secret, "\n"), 0600);
  if (absl::IsAlreadyExists(written)) {
    return absl::AlreadyExistsError(absl::StrCat(
        written.message(),
        ": give another path for the secret, or remove it"));
  }
  RETURN_IF_ERROR(written);
  const absl::Status synced =
      PosixFileSystem().SyncDirectory(ParentDirectory(path));
  if (!synced.ok()) ::unlink(path.c_str());
  return synced;
}

absl::Status MarkSecretExported(const std::string& data_dir) {
  return WriteFileAtomically(PosixFileSystem(), MarkPath(data_dir), "");
}

bool IsSecretExported(const std::string& data_dir) {
  return PosixFileSystem().Exists(MarkPath(data_dir));
}

}  // namespace atl::coordinator
