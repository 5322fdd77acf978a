// Uploads a version of a shard's part of one fragment to a mirror, as the part
// that base/mirror/DESIGN.md describes.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/mirror/part_format.h"
#include "base/object_store/object_store.h"
#include "base/object_store/throttle.h"
#include "server/store/shard_range.h"
#include "server/store/version_file.h"

namespace atl::server {

struct PartSource {
  mirror::PartIdentity identity;
  // Sealed. Its arrays are those of the identity, in order.
  std::shared_ptr<const VersionFile> file;
  ShardRange range;  // The file's; not empty.
};

struct MirroredPart {
  int32_t fragment = 0;
  std::string sha256;      // 64 hex digits.
  int64_t size_bytes = 0;
  bool is_new = false;     // False: an earlier upload had finished it.
};

// Reads the version twice: for the part's name, and to upload it. A part that
// exists is left alone. Appends at the throttle's rate, in pieces of at most
// 256 KiB.
//
// DATA_LOSS: the version cannot be read, or changed; or the mirror has an
// object of this name with another size. CANCELLED: the throttle's. Others: the
// store's.
absl::StatusOr<MirroredPart> UploadPart(ObjectStore& store,
                                        const PartSource& source,
                                        Throttle& throttle);

}  // namespace atl::server
