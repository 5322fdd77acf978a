// Manifests of mirrored checkpoints. Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/storage/v1/mirror_manifest.pb.h"
#include "base/layout/layout.h"
#include "base/mirror/mirror_names.h"
#include "base/mirror/part_format.h"

namespace atl::mirror {

inline constexpr int kManifestFormat = 1;
inline constexpr int64_t kManifestBytesMax = 256 << 20;
// Shards times fragments.
inline constexpr int64_t kPartCountMax = 1 << 20;

CheckpointPlace GetPlace(const storage::v1::MirrorManifest& manifest);
PartIdentity GetIdentity(const storage::v1::MirrorManifest& manifest,
                         const storage::v1::MirrorPart& part);

// The rules of base/mirror/DESIGN.md that need no part's bytes. `layout`: that
// of the manifest's spec.
//
// DATA_LOSS: one does not hold; the message says which.
absl::Status CheckManifest(const storage::v1::MirrorManifest& manifest,
                           const RunLayout& layout);

// JSON for readers and people. Requires: CheckManifest accepts it.
std::string ManifestToJson(const storage::v1::MirrorManifest& manifest);

// CheckManifest must follow.
//
// DATA_LOSS: `json` is no manifest, is one of another format, or has a field
// that this program does not know.
absl::StatusOr<storage::v1::MirrorManifest> ParseManifest(
    absl::string_view json);
// The same for the manifest at `place`. DATA_LOSS also if it is of another one.
absl::StatusOr<storage::v1::MirrorManifest> ParseManifest(
    const CheckpointPlace& place, absl::string_view json);

}  // namespace atl::mirror
