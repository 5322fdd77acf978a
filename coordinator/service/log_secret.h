// The secret of a coordinator's log (CoordinatorStarted.log_secret), which a
// restore of a lost log needs: it proves which log positions were given out. So
// an operator keeps a copy of it where the cluster's CA is.
//
// The file `secret-exported` in the data directory says that there is a copy.
//
// Thread-safe.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/store/store.h"

namespace atl::coordinator {

// The newest cluster id and secret of a log; either is empty in logs of earlier
// programs.
struct LogOwner {
  std::string cluster_id;
  std::string secret;
};

// Errors: the store's.
absl::StatusOr<LogOwner> ReadLogOwner(const Store& store);

// Reads the secret of the log in `data_dir`, also while a coordinator runs on
// it. Changes nothing.
//
// FAILED_PRECONDITION: there is no log, or it has no secret. Others: as
// RocksDbStore::OpenToRead.
absl::StatusOr<std::string> ReadLogSecret(const std::string& data_dir);

// Reads a secret from a file that WriteSecretFile, or a person, has written: one
// line.
//
// INVALID_ARGUMENT: it holds no secret. Others: as FileSystem::OpenForRead. No
// message has the file's content.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path);

// Makes a file with mode 0600, durably. A crash may leave one that
// ReadSecretFile refuses.
//
// ALREADY_EXISTS: there is a file, a link or a directory, which stays. Others:
// as ErrnoToStatus.
absl::Status WriteSecretFile(const std::string& path, absl::string_view secret);

// Notes, durably, that there is a copy of the secret elsewhere. Errors: as
// WriteFileAtomically.
absl::Status MarkSecretExported(const std::string& data_dir);
// False also if the directory cannot be read.
bool IsSecretExported(const std::string& data_dir);

}  // namespace atl::coordinator
