// Makes the replica and the delta of a version during its merge, while each
// tile of theta is in cache. Thread-safe for different tiles and buffers.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/layout/digest.h"
#include "base/layout/layout.h"
#include "server/core/replica.h"
#include "server/store/delta_file.h"
#include "server/store/run_store.h"
#include "server/store/version_file.h"

namespace atl::server {

// One thread's; they grow to a tile if a version or a delta is not in memory.
struct ReplicaBuffers {
  std::vector<float> from;
  std::vector<float> to;
  std::vector<char> encoded;
};

class ReplicaMaker {
 public:
  // For `to`, which becomes `version` of `fragment`, made from `from`. Null if
  // the run has no replica. `store` must outlive it.
  // RESOURCE_EXHAUSTED: the disk is full.
  static absl::StatusOr<std::unique_ptr<ReplicaMaker>> Create(
      RunStore& store, int32_t fragment, int64_t version,
      std::shared_ptr<VersionFile> from, std::shared_ptr<VersionFile> to);

  // Makes `blocks` from their `theta`: writes the replica and the delta to
  // their files, adds the replica's digest, and clears `finite` if a value is
  // not.
  // DATA_LOSS, RESOURCE_EXHAUSTED: a file cannot be read or written.
  absl::Status MakeTile(IndexRange blocks, const float* theta,
                        ReplicaBuffers& buffers, Digest128& digest,
                        bool& finite) const;

  // Publishes the delta, once all tiles are made.
  void Publish() const;

 private:
  ReplicaMaker(RunStore& store, int32_t fragment, int64_t version,
               std::shared_ptr<VersionFile> from,
               std::shared_ptr<VersionFile> to,
               std::shared_ptr<DeltaFile> delta);

  RunStore& store_;
  const EncodedLayout& layout_;
  const int64_t version_;
  const ReplicaStep step_;
  const std::shared_ptr<VersionFile> from_;
  const std::shared_ptr<VersionFile> to_;
  const std::shared_ptr<DeltaFile> delta_;
};

}  // namespace atl::server
