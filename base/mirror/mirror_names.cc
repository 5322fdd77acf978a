#include "base/mirror/mirror_names.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/random_id/random_id.h"

namespace atl::mirror {
namespace {

constexpr char kManifest[] = "manifest.json";

}  // namespace

std::string PlaceName(const CheckpointPlace& place) {
  return absl::StrCat(place.run_uid, "/", place.run_epoch, "/",
                      place.commit_seq, "/");
}

std::string ManifestName(const CheckpointPlace& place) {
  return absl::StrCat(PlaceName(place), kManifest);
}

std::optional<CheckpointPlace> ParseManifestName(absl::string_view name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  CheckpointPlace place;
  if (parts.size() != 4 || !IsRandomId(parts[0]) ||
      !absl::SimpleAtoi(parts[1], &place.run_epoch) ||
      !absl::SimpleAtoi(parts[2], &place.commit_seq) || place.run_epoch < 1 ||
      place.commit_seq < 1) {
    return std::nullopt;
  }
  place.run_uid = parts[0];
  // Only the one spelling of a number.
  if (ManifestName(place) != name) return std::nullopt;
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

}  // namespace atl::mirror
