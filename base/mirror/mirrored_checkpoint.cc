#include "base/mirror/mirrored_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "base/layout/digest.h"
#include "base/mirror/mirror_manifest.h"
#include "base/mirror/part_format.h"
#include "base/status/annotate.h"
#include "base/status/check.h"
#include "base/status/status_macros.h"

namespace atl::mirror {
namespace {

// Copies the part of `bytes`, which is at `offset` of an object, that lies in
// [begin, begin + size) to `out`.
void CopyCommon(absl::string_view bytes, int64_t offset, int64_t begin,
                int64_t size, char* out) {
  const auto count = static_cast<int64_t>(bytes.size());
  const int64_t first = std::max(offset, begin);
  const int64_t end = std::min(offset + count, begin + size);
  if (first >= end) return;
  std::memcpy(out + (first - begin), bytes.data() + (first - offset),
              end - first);
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
  const PartIdentity identity = GetIdentity(manifest_, part);
  const std::string name = PartName(identity.place, part.shard(),
                                    part.fragment(), part.sha256());
  const auto damaged = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(
        store_.GetUrl(name), " ", what, "; use another checkpoint"));
  };
  // Before memory is taken: the size is only a claim until then.
  const absl::StatusOr<ObjectInfo> info = store_.Stat(name);
  if (absl::IsNotFound(info.status())) return damaged("is missing");
  RETURN_IF_ERROR(info.status());
  if (info->size_bytes != part.size_bytes()) {
    return damaged(absl::StrCat("has ", info->size_bytes, " bytes, not ",
                                part.size_bytes()));
  }
  const std::string expected = PartHeader(layout_, identity);
  const auto header_bytes = static_cast<int64_t>(expected.size());
  std::string header(expected.size(), '\0');
  theta.resize(PartElementCount(layout_, identity));
  const auto theta_bytes = static_cast<int64_t>(theta.size() * sizeof(float));
  codec::Sha256 sha;
  int64_t offset = 0;
  const ReadRange whole = {0, part.size_bytes(), info->etag};
  RETURN_IF_ERROR(store_.Read(name, whole, [&](absl::string_view bytes) {
    sha.Update(bytes);
    CopyCommon(bytes, offset, 0, header_bytes, header.data());
    CopyCommon(bytes, offset, header_bytes, theta_bytes,
               reinterpret_cast<char*>(theta.data()));
    offset += static_cast<int64_t>(bytes.size());
    done += static_cast<int64_t>(bytes.size());
    return on_bytes ? on_bytes(done) : absl::OkStatus();
  }));
  if (codec::ToHex(sha.Finish()) != part.sha256()) {
    return damaged("has another SHA-256 than its manifest says");
  }
  if (header != expected) return damaged("has another header than its part");
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
