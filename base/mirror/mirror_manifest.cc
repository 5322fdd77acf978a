#include "base/mirror/mirror_manifest.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/layout/ids.h"
#include "base/mirror/mirror_json.h"
#include "google/protobuf/util/json_util.h"

namespace atl::mirror {
namespace {

using storage::v1::MirrorManifest;
using storage::v1::MirrorPart;

absl::Status Wrong(absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("not a manifest that this program can use: ", what));
}

bool AreArrayNames(const MirrorManifest& manifest) {
  const std::vector<std::string> names(manifest.array_names().begin(),
                                       manifest.array_names().end());
  for (int count = 0; count <= 2; ++count) {
    if (names == ArrayNames(count, false) || names == ArrayNames(count, true)) {
      return true;
    }
  }
  return false;
}

// `next`: the first part that is not checked yet.
absl::Status CheckPart(const MirrorManifest& manifest, const RunLayout& layout,
                       int32_t shard, int32_t fragment, int* next) {
  MirrorPart expected;
  expected.set_shard(shard);
  expected.set_fragment(fragment);
  const PartIdentity identity = GetIdentity(manifest, expected);
  const int64_t element_count = PartElementCount(layout, identity);
  if (element_count == 0) return absl::OkStatus();
  const std::string what =
      absl::StrCat("its part of shard ", shard, " and fragment ", fragment);
  if (*next == manifest.parts_size()) {
    return Wrong(absl::StrCat(what, " is missing"));
  }
  const MirrorPart& part = manifest.parts((*next)++);
  if (part.shard() != shard || part.fragment() != fragment) {
    return Wrong(absl::StrCat(what, " is missing"));
  }
  if (!IsLowerHex(part.sha256(), 64)) return Wrong(what + " has no SHA-256");
  const auto header_bytes =
      static_cast<int64_t>(PartHeader(layout, identity).size());
  const int64_t data_bytes =
      element_count * manifest.array_names_size() *
      static_cast<int64_t>(sizeof(float));
  if (part.size_bytes() != header_bytes + data_bytes) {
    return Wrong(absl::StrCat(what, " has ", part.size_bytes(), " bytes, not ",
                              header_bytes + data_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

CheckpointPlace GetPlace(const MirrorManifest& manifest) {
  return {manifest.run_uid(), manifest.run_epoch(),
          manifest.pin().commit_seq()};
}

PartIdentity GetIdentity(const MirrorManifest& manifest,
                         const MirrorPart& part) {
  return {.place = GetPlace(manifest),
          .shard = part.shard(),
          .shard_count = manifest.shard_count(),
          .fragment = part.fragment(),
          .version = manifest.pin().cut(part.fragment()).version(),
          .array_names = {manifest.array_names().begin(),
                          manifest.array_names().end()}};
}

absl::Status CheckManifest(const MirrorManifest& manifest,
                           const RunLayout& layout) {
  if (!ValidateId("run_id", manifest.run_id()).ok()) {
    return Wrong("its run_id is malformed");
  }
  if (!ValidateId("pin_id", manifest.pin().pin_id()).ok()) {
    return Wrong("its pin_id is malformed");
  }
  if (!AreArrayNames(manifest)) return Wrong("its array_names are not known");
  if (manifest.shard_count() < 1 ||
      manifest.shard_count() > kPartCountMax / layout.fragment_count()) {
    return Wrong(absl::StrCat("it has ", manifest.shard_count(), " shards"));
  }
  if (manifest.pin().cut_size() != layout.fragment_count()) {
    return Wrong(absl::StrCat("its cut has ", manifest.pin().cut_size(),
                              " versions for ", layout.fragment_count(),
                              " fragments"));
  }
  for (int32_t f = 0; f < layout.fragment_count(); ++f) {
    const v1::FragmentVersion& version = manifest.pin().cut(f);
    if (version.fragment() != f || version.version() < 0 ||
        !version.has_digest()) {
      return Wrong(absl::StrCat("its cut's fragment ", f, " is malformed"));
    }
  }
  int next = 0;
  for (int32_t shard = 0; shard < manifest.shard_count(); ++shard) {
    for (int32_t f = 0; f < layout.fragment_count(); ++f) {
      const absl::Status status = CheckPart(manifest, layout, shard, f, &next);
      if (!status.ok()) return status;
    }
  }
  if (next != manifest.parts_size()) return Wrong("it has too many parts");
  return absl::OkStatus();
}

std::string ManifestToJson(const MirrorManifest& manifest) {
  return ToJson(manifest);
}

absl::StatusOr<MirrorManifest> ParseManifest(absl::string_view json) {
  MirrorManifest manifest;
  const auto status = google::protobuf::util::JsonStringToMessage(
      std::string(json), &manifest);
  if (!status.ok()) return Wrong(status.ToString());
  if (manifest.format() != kManifestFormat) {
    return Wrong(absl::StrCat("its format is ", manifest.format(), ", not ",
                              kManifestFormat));
  }
  return manifest;
}

absl::StatusOr<MirrorManifest> ParseManifest(const CheckpointPlace& place,
                                             absl::string_view json) {
  absl::StatusOr<MirrorManifest> manifest = ParseManifest(json);
  if (manifest.ok() && GetPlace(*manifest) != place) {
    return Wrong("it belongs to another run, epoch or commit");
  }
  return manifest;
}

}  // namespace atl::mirror
