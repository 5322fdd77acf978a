// Durability `island`: the merged gradient ("sum") of each version that is
// prepared and not yet durable. A start makes such a version again from it.
// server/store/DESIGN.md, Sum, has the format.
//
// Thread-safe. Bytes are read and written outside the locks.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/sync/mutex.h"
#include "server/core/shard_machine.h"
#include "server/store/store_context.h"
#include "server/store/version_file.h"

namespace atl::server {

class SumStore {
 public:
  // `context` must outlive it.
  explicit SumStore(const StoreContext& context) : context_(context) {}

  // Opens the sums of `unmade`, the versions that an earlier process prepared
  // and that are not here; removes all other sums.
  //
  // UNAVAILABLE: the disk does not give one of them; it stays as it is.
  absl::Status Recover(absl::Span<const PreparedFact> unmade);

  // An empty file for the sum of a version that is being made: a version file
  // of one array, which Write writes immediately.
  //
  // RESOURCE_EXHAUSTED: the disk is full.
  absl::StatusOr<std::shared_ptr<VersionFile>> New(int32_t fragment,
                                                   int64_t version);
  // Removes a file that New made and that its caller does not Put. A file whose
  // name another attempt has taken stays. `sum` may be null.
  void GiveUp(int32_t fragment, int64_t version,
              const std::shared_ptr<VersionFile>& sum);
  // The sum is complete, and its version published.
  void Put(int32_t fragment, int64_t version, std::shared_ptr<VersionFile> sum);
  // Undoes Put.
  void TakeBack(int32_t fragment, int64_t version);
  // Null if there is none.
  std::shared_ptr<VersionFile> Find(int32_t fragment, int64_t version) const;
  // The version is durable, or discarded: its sum's file can be written again.
  void Recycle(int32_t fragment, int64_t version);
  // Removes the files that are kept to be written again.
  void DropSpares();

 private:
  // The sum of a prepared version; null if it is missing, damaged or of another
  // version.
  absl::StatusOr<std::shared_ptr<VersionFile>> Open(const PreparedFact& fact);

  const StoreContext& context_;

  // Held while a file is made: one file has one name. Taken before mutex_.
  Mutex making_mutex_;
  // By fragment: the newest file that New made, which owns its name. Compared
  // only, never dereferenced.
  std::map<int32_t, const VersionFile*> made_ ABSL_GUARDED_BY(making_mutex_);

  mutable Mutex mutex_;
  std::map<std::pair<int32_t, int64_t>, std::shared_ptr<VersionFile>> sums_
      ABSL_GUARDED_BY(mutex_);  // By fragment and version.
  std::map<int32_t, std::vector<std::shared_ptr<VersionFile>>> spares_
      ABSL_GUARDED_BY(mutex_);  // By fragment.
};

}  // namespace atl::server
