// Reads a part of a checkpoint and checks it. Thread-compatible.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "atoll/storage/v1/mirror_manifest.pb.h"
#include "base/layout/layout.h"
#include "base/mirror/part_format.h"
#include "base/object_store/object_store.h"

namespace atl::mirror {

// A part as the mirror has it.
struct FoundPart {
  PartIdentity identity;
  std::string name;
  std::string sha256;  // As the manifest says.
  ObjectInfo info;
};

// Looks at a part before memory or disk space is taken: its size is only a claim
// until then.
//
// DATA_LOSS: it is missing, or has another size than the manifest says. Others:
// the store's.
absl::StatusOr<FoundPart> FindPart(ObjectStore& store,
                                   const storage::v1::MirrorManifest& manifest,
                                   const storage::v1::MirrorPart& part);

// Reads the part whole. `sink` gets the bytes of its arrays, in order, and what
// it has got is only checked once the call succeeds.
//
// DATA_LOSS: the part has another header or SHA-256. Others: the store's, and
// those of `sink` as they are.
absl::Status ReadPart(ObjectStore& store, const RunLayout& layout,
                      const FoundPart& part, ObjectSink sink);

}  // namespace atl::mirror
