#include "base/mirror/mirror_names.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/random_id/random_id.h"

namespace atl::mirror {
namespace {

constexpr char kManifest[] = "manifest.json";
constexpr absl::string_view kClusters = "cluster/";
constexpr absl::string_view kJson = ".json";

// The place in a name with four parts.
std::optional<CheckpointPlace> ParsePlace(
    const std::vector<absl::string_view>& parts) {
  CheckpointPlace place;
  if (parts.size() != 4 || !IsRandomId(parts[0]) ||
      !absl::SimpleAtoi(parts[1], &place.run_epoch) ||
      !absl::SimpleAtoi(parts[2], &place.commit_seq) || place.run_epoch < 1 ||
      place.commit_seq < 1) {
    return std::nullopt;
  }
  place.run_uid = std::string(parts[0]);
  return place;
}

}  // namespace

std::string PlaceName(const CheckpointPlace& place) {
  return absl::StrCat(place.run_uid, "/", place.run_epoch, "/",
                      place.commit_seq, "/");
}

std::string ManifestName(const CheckpointPlace& place) {
  return absl::StrCat(PlaceName(place), kManifest);
}

std::optional<CheckpointPlace> ParseManifestName(absl::string_view name) {
  const std::optional<CheckpointPlace> place =
      ParsePlace(absl::StrSplit(name, '/'));
  // Only the one spelling of a number.
  if (!place.has_value() || ManifestName(*place) != name) return std::nullopt;
  return place;
}

std::string ShardPrefix(const CheckpointPlace& place, int32_t shard) {
  return absl::StrCat(PlaceName(place), "shard-", shard, "-");
}

std::string PartName(const CheckpointPlace& place, int32_t shard,
                     int32_t fragment, absl::string_view sha256) {
  return absl::StrCat(ShardPrefix(place, shard), "fragment-", fragment, "-",
                      sha256, ".safetensors");
}

std::optional<CheckpointPlace> ParsePartName(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '/');
  const std::optional<CheckpointPlace> place = ParsePlace(parts);
  if (!place.has_value()) return std::nullopt;
  absl::string_view last = parts[3];
  absl::ConsumeSuffix(&last, ".safetensors");
  const std::vector<absl::string_view> words = absl::StrSplit(last, '-');
  int32_t shard = 0;
  int32_t fragment = 0;
  if (words.size() != 5 || !absl::SimpleAtoi(words[1], &shard) ||
      !absl::SimpleAtoi(words[3], &fragment) || words[4].size() != 64 ||
      PartName(*place, shard, fragment, words[4]) != name) {
    return std::nullopt;
  }
  return place;
}

std::string OwnersPrefix(absl::string_view run_uid) {
  return absl::StrCat(run_uid, "/owner/");
}

std::string OwnerName(const OwnerPlace& place) {
  return absl::StrCat(OwnersPrefix(place.run_uid),
                      absl::Dec(place.run_epoch, absl::kZeroPad20), kJson);
}

std::optional<OwnerPlace> ParseOwnerName(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '/');
  OwnerPlace place;
  if (parts.size() != 3 || !IsRandomId(parts[0]) ||
      !absl::SimpleAtoi(absl::StripSuffix(parts[2], kJson),
                        &place.run_epoch) ||
      place.run_epoch < 1 || place.run_epoch > kOwnerEpochMax) {
    return std::nullopt;
  }
  place.run_uid = std::string(parts[0]);
  // Only the one spelling of a number.
  if (OwnerName(place) != name) return std::nullopt;
  return place;
}

absl::string_view ClustersPrefix() { return kClusters; }

std::string ClusterPrefix(absl::string_view cluster_id) {
  return absl::StrCat(kClusters, cluster_id, "/");
}

std::string ClusterName(const ClusterPlace& place) {
  return absl::StrCat(ClusterPrefix(place.cluster_id),
                      absl::Dec(place.log_index, absl::kZeroPad20), kJson);
}

std::optional<ClusterPlace> ParseClusterName(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '/');
  ClusterPlace place;
  if (parts.size() != 3 || !IsRandomId(parts[1]) ||
      !absl::SimpleAtoi(absl::StripSuffix(parts[2], kJson),
                        &place.log_index) ||
      place.log_index < 1) {
    return std::nullopt;
  }
  place.cluster_id = std::string(parts[1]);
  // Only the one spelling of a number.
  if (ClusterName(place) != name) return std::nullopt;
  return place;
}

}  // namespace atl::mirror
