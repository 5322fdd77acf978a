#include "base/mirror/mirror_writer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/layout/layout.h"
#include "base/mirror/mirror_json.h"
#include "base/mirror/mirror_manifest.h"
#include "base/mirror/part_format.h"
#include "base/random_id/random_id.h"
#include "base/status/status_macros.h"
#include "google/protobuf/util/message_differencer.h"

namespace atl::mirror {
namespace {

using storage::v1::MirrorManifest;
using storage::v1::MirrorPart;
using storage::v1::RunOwner;

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

// The objects at a place of a run.
struct FoundPlace {
  bool has_manifest = false;
  std::vector<std::string> parts;
};

absl::Status OldCopy(ObjectStore& store, const std::string& name,
                     int64_t run_epoch) {
  return absl::FailedPreconditionError(absl::StrCat(
      store.GetUrl(name), " is of a later run epoch than this coordinator's, ",
      run_epoch, ": it is an older copy, or another cluster continues the run; "
      "it removes nothing"));
}

// The places with objects of the mirror. FAILED_PRECONDITION: as CollectRun.
absl::StatusOr<std::map<CheckpointPlace, FoundPlace>> FindAll(
    ObjectStore& store, const RunOwner& owner) {
  ASSIGN_OR_RETURN(
      const std::vector<ObjectInfo> objects,
      store.List(absl::StrCat(owner.run_uid(), "/"), kObjectCountMax));
  std::map<CheckpointPlace, FoundPlace> found;
  for (const ObjectInfo& object : objects) {
    const std::optional<OwnerPlace> other = ParseOwnerName(object.name);
    if (other.has_value() && other->run_epoch > owner.run_epoch()) {
      return OldCopy(store, object.name, owner.run_epoch());
    }
    const std::optional<CheckpointPlace> manifest =
        ParseManifestName(object.name);
    const std::optional<CheckpointPlace> place =
        manifest.has_value() ? manifest : ParsePartName(object.name);
    if (!place.has_value()) continue;  // Not ours.
    if (place->run_epoch > owner.run_epoch()) {
      return OldCopy(store, object.name, owner.run_epoch());
    }
    FoundPlace& at = found[*place];
    at.has_manifest |= manifest.has_value();
    if (!manifest.has_value()) at.parts.push_back(object.name);
  }
  return found;
}

bool Stays(const CheckpointPlace& place, const RunOwner& owner,
           const std::set<CheckpointPlace>& kept) {
  if (kept.count(place) > 0) return true;
  // Made after `kept` was: its shards upload it now.
  if (!kept.empty() && place > *kept.rbegin()) return true;
  if (place.run_epoch >= owner.since_run_epoch()) return false;
  return std::none_of(kept.begin(), kept.end(),
                      [&](const CheckpointPlace& other) {
                        return other.commit_seq == place.commit_seq &&
                               other.run_epoch >= owner.since_run_epoch();
                      });
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

absl::StatusOr<Collected> CollectRun(ObjectStore& store, const RunOwner& owner,
                                     const std::set<CheckpointPlace>& kept) {
  if (!IsRandomId(owner.run_uid())) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", owner.run_uid(), "\" is no run_uid"));
  }
  ASSIGN_OR_RETURN(auto found, FindAll(store, owner));
  std::erase_if(found, [&](const auto& entry) {
    return Stays(entry.first, owner, kept);
  });
  Collected collected;
  for (auto entry = found.begin(); entry != found.end();) {
    const std::string name = ManifestName(entry->first);
    bool is_newer = false;
    if (entry->second.has_manifest) {
      ASSIGN_OR_RETURN(is_newer,
                       IsOfNewerFormat(store, name, kManifestFormat,
                                       kManifestBytesMax));
    }
    if (is_newer) {
      entry = found.erase(entry);
      continue;
    }
    if (entry->second.has_manifest) {
      RETURN_IF_ERROR(store.Remove(name));
      ++collected.checkpoint_count;
    }
    ++entry;
  }
  for (const auto& [place, at] : found) {
    // Before the parts, which show where a killed server left some.
    RETURN_IF_ERROR(store.RemoveUnfinished(PlaceName(place)));
  }
  for (const auto& [place, at] : found) {
    for (const std::string& name : at.parts) {
      RETURN_IF_ERROR(store.Remove(name));
      ++collected.object_count;
    }
  }
  return collected;
}

}  // namespace atl::mirror
