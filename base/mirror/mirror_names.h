// Names of objects in a mirror, relative to its URL. Pure. Thread-safe.

#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace atl::mirror {

// Objects that a list of a mirror, or of a part of it, reads.
inline constexpr int64_t kObjectCountMax = 4'000'000;

// A checkpoint's place. Ordered by run, epoch and commit.
struct CheckpointPlace {
  std::string run_uid;     // As RandomId.
  int64_t run_epoch = 0;   // >= 1.
  int64_t commit_seq = 0;  // Pin.commit_seq, >= 1.

  friend auto operator<=>(const CheckpointPlace&,
                          const CheckpointPlace&) = default;
};

// "RUN_UID/EPOCH/COMMIT/": the prefix of a checkpoint's names.
std::string PlaceName(const CheckpointPlace& place);

std::string ManifestName(const CheckpointPlace& place);
// nullopt: `name` is no manifest's.
std::optional<CheckpointPlace> ParseManifestName(absl::string_view name);

// The prefix of the names of a shard's parts.
std::string ShardPrefix(const CheckpointPlace& place, int32_t shard);
// `sha256`: of the part, in hex.
std::string PartName(const CheckpointPlace& place, int32_t shard,
                     int32_t fragment, absl::string_view sha256);
// The checkpoint of a part. nullopt: `name` is no part's.
std::optional<CheckpointPlace> ParsePartName(absl::string_view name);

// The place of an owner of a run.
struct OwnerPlace {
  std::string run_uid;    // As RandomId.
  int64_t run_epoch = 0;  // In [1, kOwnerEpochMax].

  friend auto operator<=>(const OwnerPlace&, const OwnerPlace&) = default;
};

// A run that takes its place counts on from there.
inline constexpr int64_t kOwnerEpochMax = 1'000'000'000;

// The prefix of the names of a run's owners.
std::string OwnersPrefix(absl::string_view run_uid);
// "RUN_UID/owner/EPOCH.json". Names of a run sort by run_epoch.
std::string OwnerName(const OwnerPlace& place);
// nullopt: `name` is no owner's.
std::optional<OwnerPlace> ParseOwnerName(absl::string_view name);

// A cluster object's place.
struct ClusterPlace {
  std::string cluster_id;  // As RandomId.
  int64_t log_index = 0;   // ClusterObject.log_index, >= 1.

  friend auto operator<=>(const ClusterPlace&, const ClusterPlace&) = default;
};

// The prefix of the names of all cluster objects.
absl::string_view ClustersPrefix();
// The prefix of those of one cluster.
std::string ClusterPrefix(absl::string_view cluster_id);
// "cluster/CLUSTER_ID/INDEX.json". Names of a cluster sort by log_index.
std::string ClusterName(const ClusterPlace& place);
// nullopt: `name` is no cluster object's.
std::optional<ClusterPlace> ParseClusterName(absl::string_view name);

}  // namespace atl::mirror
