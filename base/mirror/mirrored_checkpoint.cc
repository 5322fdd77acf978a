#include "base/mirror/mirrored_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/layout/digest.h"
#include "base/mirror/mirror_manifest.h"
#include "base/mirror/part_format.h"
#include "base/mirror/part_reader.h"
#include "base/status/annotate.h"
#include "base/status/check.h"
#include "base/status/status_macros.h"

namespace atl::mirror {
namespace {

// Says what to do about a damaged part.
absl::Status WithAdvice(const absl::Status& status) {
  if (!absl::IsDataLoss(status)) return status;
  return absl::DataLossError(
      absl::StrCat(status.message(), "; use another checkpoint"));
}

}  // namespace

absl::StatusOr<std::vector<CheckpointPlace>> ListCheckpoints(
    ObjectStore& store) {
  ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects,
                   store.List("", kObjectCountMax));
  std::vector<CheckpointPlace> places;
  for (const ObjectInfo& object : objects) {
    const std::optional<CheckpointPlace> place = ParseManifestName(object.name);
    if (place.has_value()) places.push_back(*place);
  }
  std::sort(places.begin(), places.end());
  return places;
}

absl::StatusOr<std::unique_ptr<MirroredCheckpoint>> MirroredCheckpoint::Open(
    ObjectStore& store, const CheckpointPlace& place) {
  const std::string name = ManifestName(place);
  ASSIGN_OR_RETURN(const std::string json,
                   GetObject(store, name, kManifestBytesMax));
  absl::StatusOr<storage::v1::MirrorManifest> manifest =
      ParseManifest(place, json);
  if (!manifest.ok()) return Annotate(manifest.status(), store.GetUrl(name));
  absl::StatusOr<RunLayout> layout =
      RunLayout::Create(manifest->spec().layout());
  if (!layout.ok()) {
    return absl::DataLossError(absl::StrCat(store.GetUrl(name), ": ",
                                            layout.status().message()));
  }
  RETURN_IF_ERROR(
      Annotate(CheckManifest(*manifest, *layout), store.GetUrl(name)));
  return std::unique_ptr<MirroredCheckpoint>(new MirroredCheckpoint(
      store, *std::move(manifest), *std::move(layout)));
}

int64_t MirroredCheckpoint::PartBytes() const {
  int64_t bytes = 0;
  for (const storage::v1::MirrorPart& part : manifest_.parts()) {
    bytes += part.size_bytes();
  }
  return bytes;
}

int64_t MirroredCheckpoint::ThetaBytesMax() const {
  int64_t elements = 0;
  for (const storage::v1::MirrorPart& part : manifest_.parts()) {
    elements = std::max(
        elements, PartElementCount(layout_, GetIdentity(manifest_, part)));
  }
  return elements * static_cast<int64_t>(sizeof(float));
}

absl::Status MirroredCheckpoint::ReadPart(const storage::v1::MirrorPart& part,
                                          std::vector<float>& theta,
                                          int64_t& done,
                                          const OnBytes& on_bytes) const {
  const absl::StatusOr<FoundPart> found = FindPart(store_, manifest_, part);
  RETURN_IF_ERROR(WithAdvice(found.status()));
  theta.resize(PartElementCount(layout_, found->identity));
  const auto theta_bytes = static_cast<int64_t>(theta.size() * sizeof(float));
  int64_t offset = 0;
  const int64_t before = done;
  RETURN_IF_ERROR(WithAdvice(mirror::ReadPart(
      store_, layout_, *found, [&](absl::string_view bytes) {
        const auto count = static_cast<int64_t>(bytes.size());
        if (offset < theta_bytes) {
          std::memcpy(reinterpret_cast<char*>(theta.data()) + offset,
                      bytes.data(), std::min(count, theta_bytes - offset));
        }
        offset += count;
        done += count;
        return on_bytes ? on_bytes(done) : absl::OkStatus();
      })));
  done = before + part.size_bytes();
  return absl::OkStatus();
}

absl::Status MirroredCheckpoint::Read(absl::Span<float> parameters,
                                      const OnBytes& on_bytes) const {
  CHECK(parameters.empty() ||
        static_cast<int64_t>(parameters.size()) == layout_.element_count());
  std::vector<Digest128> digests(layout_.fragment_count());
  std::vector<float> theta;
  int64_t done = 0;
  for (const storage::v1::MirrorPart& part : manifest_.parts()) {
    RETURN_IF_ERROR(ReadPart(part, theta, done, on_bytes));
    digests[part.fragment()] += RangeDigest(
        layout_, part.fragment(),
        layout_.ShardBlocks(part.fragment(), part.shard(),
                            manifest_.shard_count()),
        theta);
    if (parameters.empty()) continue;
    const float* from = theta.data();
    for (const PartRange& range :
         PartRanges(layout_, GetIdentity(manifest_, part))) {
      const int64_t begin = layout_.tensors()[range.tensor].model_offset +
                            range.elements.begin;
      std::copy_n(from, range.elements.size(), parameters.begin() + begin);
      from += range.elements.size();
    }
  }
  for (int32_t f = 0; f < layout_.fragment_count(); ++f) {
    if (digests[f] == Digest128::FromProto(manifest_.pin().cut(f).digest())) {
      continue;
    }
    return absl::DataLossError(absl::StrCat(
        store_.GetUrl(PlaceName(GetPlace(manifest_))), ": the parameters of ",
        "fragment ", f, " do not have the digest of their version; use another "
        "checkpoint"));
  }
  return absl::OkStatus();
}

}  // namespace atl::mirror
