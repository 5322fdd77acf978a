#include "base/mirror/part_reader.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/codec/sha256.h"
#include "base/mirror/mirror_manifest.h"
#include "base/mirror/mirror_names.h"
#include "base/status/status_macros.h"

namespace atl::mirror {
namespace {

absl::Status Damaged(ObjectStore& store, const std::string& name,
                     absl::string_view what) {
  return absl::DataLossError(absl::StrCat(store.GetUrl(name), " ", what));
}

}  // namespace

absl::StatusOr<FoundPart> FindPart(ObjectStore& store,
                                   const storage::v1::MirrorManifest& manifest,
                                   const storage::v1::MirrorPart& part) {
  FoundPart found;
  found.identity = GetIdentity(manifest, part);
  found.name = PartName(found.identity.place, part.shard(), part.fragment(),
                        part.sha256());
  found.sha256 = part.sha256();
  const absl::StatusOr<ObjectInfo> info = store.Stat(found.name);
  if (absl::IsNotFound(info.status())) {
    return Damaged(store, found.name, "is missing");
  }
  RETURN_IF_ERROR(info.status());
  if (info->size_bytes != part.size_bytes()) {
    return Damaged(store, found.name,
                   absl::StrCat("has ", info->size_bytes, " bytes, not ",
                                part.size_bytes()));
  }
  found.info = *info;
  return found;
}

absl::Status ReadPart(ObjectStore& store, const RunLayout& layout,
                      const FoundPart& part, ObjectSink sink) {
  const std::string header = PartHeader(layout, part.identity);
  size_t header_bytes = 0;
  bool is_other = false;
  codec::Sha256 sha;
  const absl::Status read = store.Read(
      part.name, {0, part.info.size_bytes, part.info.etag},
      [&](absl::string_view bytes) -> absl::Status {
        sha.Update(bytes);
        const size_t size =
            std::min(bytes.size(), header.size() - header_bytes);
        if (bytes.substr(0, size) !=
            absl::string_view(header).substr(header_bytes, size)) {
          is_other = true;
          return absl::DataLossError("another header");
        }
        header_bytes += size;
        bytes.remove_prefix(size);
        return bytes.empty() ? absl::OkStatus() : sink(bytes);
      });
  if (is_other) {
    return Damaged(store, part.name, "has another header than its part");
  }
  RETURN_IF_ERROR(read);
  if (codec::ToHex(sha.Finish()) != part.sha256) {
    return Damaged(store, part.name,
                   "has another SHA-256 than its manifest says");
  }
  return absl::OkStatus();
}

}  // namespace atl::mirror
