// Cluster objects of a mirror: what a coordinator's log must begin with if it
// takes the place of a lost one. One process writes them for a cluster: its
// coordinator. Thread-compatible.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/storage/v1/cluster_object.pb.h"
#include "base/mirror/mirror_names.h"
#include "base/object_store/object_store.h"

namespace atl::mirror {

inline constexpr int kClusterFormat = 1;
inline constexpr int64_t kClusterBytesMax = 256 << 20;

// --- Readers -----------------------------------------------------------------

// The newest object of each cluster, by cluster_id. It may be damaged. Errors as
// ObjectStore::List's.
absl::StatusOr<std::vector<ClusterPlace>> ListClusters(ObjectStore& store);

struct FoundCluster {
  storage::v1::ClusterObject object;
  // One for each newer object that is damaged, newest first: its URL, and why.
  std::vector<std::string> warnings;
};

// The newest object of a cluster that can be read.
//
// INVALID_ARGUMENT: `cluster_id` is malformed. NOT_FOUND: the mirror has no
// object of it. DATA_LOSS: all are damaged, or of another format; the message
// says why for the newest. Others: the store's.
absl::StatusOr<FoundCluster> ReadCluster(ObjectStore& store,
                                         absl::string_view cluster_id);

// --- The coordinator ---------------------------------------------------------

// Writes `object`, once. OK also if the same object exists, whatever its
// create_time. Requires: `object` has no secret.
//
// INVALID_ARGUMENT: `object` is none that ReadCluster returns; nothing is
// written. FAILED_PRECONDITION: the mirror has an object of a log that has gone
// further, or elsewhere, than the one of `object`: the caller is an old copy.
// Others: the store's.
absl::Status WriteCluster(ObjectStore& store,
                          const storage::v1::ClusterObject& object);

// Removes the objects of a cluster before `newest`, which WriteCluster has just
// written, but the one before it, and what killed writers left of others. Newer
// ones stay, and those of a newer format. Returns the number of objects removed.
// Errors: the store's.
absl::StatusOr<int64_t> CollectClusters(ObjectStore& store,
                                        const ClusterPlace& newest);

}  // namespace atl::mirror
