// `atoll-coordinator init`: makes the log of a new cluster, once. A coordinator
// never makes one by itself: on a wrong directory, or on a volume that is not
// mounted, it would be another cluster, which its islands and servers refuse.
//
// The log's first record is a start (Coordinator::Start), which has the
// cluster's id and secret.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/time/clock.h"

namespace atl::coordinator {

struct InitSpec {
  std::string data_dir;
  std::string cluster_id;  // As RandomId has it. Empty: a new one.
  bool if_empty = false;   // A log that is there stays, whatever its cluster.
  // File that gets the log's secret (log_secret.h); empty: none does.
  std::string secret_file;
};

struct InitResult {
  bool made = false;  // False: there was a log.
  // Empty: the log that was there cannot be read.
  std::string cluster_id;
};

// Makes a log in `spec.data_dir`, then `spec.secret_file`. After a crash at any
// time a second call continues; if the log was made, one with `if_empty` does.
// That one also writes the secret of a log that was there before.
//
// INVALID_ARGUMENT: cluster_id has another form.
// ALREADY_EXISTS: there is a log, and not `if_empty`; the message names its
// cluster. Or there is a secret_file, and no log, or one with another secret.
// Others: as RocksDbStore::Create, ReadLogSecret and WriteSecretFile.
absl::StatusOr<InitResult> InitLog(const InitSpec& spec, const Clock& clock);

}  // namespace atl::coordinator
