#include "base/mirror/mirror_writer.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/layout/layout.h"
#include "base/mirror/mirror_manifest.h"
#include "base/mirror/part_format.h"
#include "base/random_id/random_id.h"
#include "base/status/status_macros.h"
#include "google/protobuf/util/message_differencer.h"

namespace atl::mirror {
namespace {

using storage::v1::MirrorManifest;
using storage::v1::MirrorPart;

// Objects of a run that a collection lists.
constexpr int64_t kObjectCountMax = 4'000'000;

absl::Status CheckPartExists(ObjectStore& store, const MirrorManifest& manifest,
                             const MirrorPart& part) {
  const std::string name = PartName(GetPlace(manifest), part.shard(),
                                    part.fragment(), part.sha256());
  const absl::StatusOr<ObjectInfo> info = store.Stat(name);
  if (!info.ok() && !absl::IsNotFound(info.status())) return info.status();
  if (info.ok() && info->size_bytes == part.size_bytes()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(store.GetUrl(name), " is missing or incomplete: start the "
                   "server of shard ", part.shard(), " again, with the "
                   "coordinator's --mirror, and it uploads the part again"));
}

// Clears what may differ between two manifests of one checkpoint: a process
// that died after it wrote the first one left the run a later state.
void ClearVolatile(MirrorManifest& manifest) {
  manifest.clear_create_time();
  manifest.clear_members();
  manifest.mutable_pin()->clear_suspect();
}

// OK if the manifest that exists is of the same checkpoint.
absl::Status CheckSame(ObjectStore& store, const std::string& name,
                       MirrorManifest manifest) {
  ASSIGN_OR_RETURN(const std::string json,
                   GetObject(store, name, kManifestBytesMax));
  absl::StatusOr<MirrorManifest> found =
      ParseManifest(GetPlace(manifest), json);
  if (found.ok()) {
    ClearVolatile(*found);
    ClearVolatile(manifest);
    if (google::protobuf::util::MessageDifferencer::Equals(*found, manifest)) {
      return absl::OkStatus();
    }
  }
  return absl::AlreadyExistsError(absl::StrCat(
      store.GetUrl(name), " is another manifest: another coordinator writes "
                          "this run's checkpoints; stop one of them"));
}

}  // namespace

absl::Status WriteManifest(ObjectStore& store, const MirrorManifest& manifest) {
  ASSIGN_OR_RETURN(const RunLayout layout,
                   RunLayout::Create(manifest.spec().layout()));
  RETURN_IF_ERROR(CheckManifest(manifest, layout));
  for (const MirrorPart& part : manifest.parts()) {
    RETURN_IF_ERROR(CheckPartExists(store, manifest, part));
  }
  const std::string name = ManifestName(GetPlace(manifest));
  const absl::Status status =
      PutObject(store, name, ManifestToJson(manifest), WriteMode::kCreate);
  if (!absl::IsAlreadyExists(status)) return status;
  return CheckSame(store, name, manifest);
}

absl::StatusOr<Collected> CollectRun(ObjectStore& store,
                                     const std::string& run_uid,
                                     int64_t run_epoch,
                                     const std::set<CheckpointPlace>& kept) {
  if (!IsRandomId(run_uid)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", run_uid, "\" is no run_uid"));
  }
  ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects,
                   store.List(absl::StrCat(run_uid, "/"), kObjectCountMax));
  std::vector<std::string> manifests;
  std::vector<std::string> parts;
  std::set<CheckpointPlace> removed;
  for (const ObjectInfo& object : objects) {
    const std::optional<CheckpointPlace> manifest =
        ParseManifestName(object.name);
    const std::optional<CheckpointPlace> place =
        manifest.has_value() ? manifest : ParsePartName(object.name);
    if (!place.has_value()) continue;  // Not ours.
    if (place->run_epoch > run_epoch) {
      return absl::FailedPreconditionError(absl::StrCat(
          store.GetUrl(object.name), " is of run epoch ", place->run_epoch,
          ", but this coordinator's is ", run_epoch,
          ": it is an older copy, or another cluster continues the run; it "
          "removes nothing"));
    }
    if (kept.count(*place) > 0) continue;
    // Made after `kept` was: its shards upload it now.
    if (!kept.empty() && *place > *kept.rbegin()) continue;
    (manifest.has_value() ? manifests : parts).push_back(object.name);
    removed.insert(*place);
  }
  Collected collected;
  for (const std::string& name : manifests) {
    RETURN_IF_ERROR(store.Remove(name));
    ++collected.checkpoint_count;
  }
  // Before the parts, which show where a killed server left some.
  for (const CheckpointPlace& place : removed) {
    RETURN_IF_ERROR(store.RemoveUnfinished(PlaceName(place)));
  }
  for (const std::string& name : parts) {
    RETURN_IF_ERROR(store.Remove(name));
    ++collected.object_count;
  }
  return collected;
}

}  // namespace atl::mirror
