// Gets versions that a shard lacks from a checkpoint in a mirror, for a restore
// to that checkpoint's cut.

#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "atoll/v1/plan.pb.h"
#include "base/io/file_system.h"
#include "base/object_store/object_store.h"
#include "server/store/records/record_store.h"
#include "server/store/records/server_records.pb.h"

namespace atl::server {

struct DownloadSpec {
  FileSystem& fs;
  RecordStore& records;
  std::string data_dir;
  const records::RunRecord& record;
  int optimizer_state_count = 0;  // Arrays of the run's outer optimizer.
  // The cut, with its place in the mirror.
  const v1::RestoredCut& restored;
  // True ends the download with CANCELLED. Called after each piece.
  std::function<bool()> is_cancelled;
};

// Writes the file of each version of the cut that is not here whole, durably
// under its final name, in the place of a damaged one. The checkpoint may be
// that of another number of shards: parts that have some of the shard's blocks
// are read whole. Their sizes, SHA-256, headers and, if the shard holds the
// whole fragment, the digest are checked before that. RunStore::Rollback must
// follow: the next RunStore::Open removes versions that no record names.
// Requires: no Shard has the directory open. Blocks on the network and the
// disk.
//
// DATA_LOSS: the mirror does not have the checkpoint, or it is damaged or
// another one than the cut says; the message names the object. UNAVAILABLE,
// RESOURCE_EXHAUSTED: a later call may succeed; it continues with the first
// version that is missing.
absl::Status DownloadVersions(ObjectStore& store, const DownloadSpec& spec);

}  // namespace atl::server
