// A small run and a checkpoint of it, for tests. All but the last function are
// pure.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "atoll/storage/v1/mirror_manifest.pb.h"
#include "atoll/v1/run.pb.h"
#include "base/layout/layout.h"
#include "base/mirror/mirror_names.h"
#include "base/mirror/part_format.h"
#include "base/object_store/object_store.h"

namespace atl::mirror {

inline constexpr int kSmallShardCount = 3;

// Two fragments, whose tensors begin and end in the midst of shards; the second
// has no blocks on a shard.
v1::Layout SmallLayout();

// Parameters in the model order, all different.
std::vector<float> SmallParameters(const RunLayout& layout);

// Elements of `part` in one of its arrays. Array 0 is SmallParameters; others
// have other values.
std::vector<float> SmallElements(const RunLayout& layout,
                                 const PartIdentity& part, int array);

// A manifest of SmallParameters without parts: epoch 2, commit 5, arrays theta
// and m.
storage::v1::MirrorManifest SmallManifest(const RunLayout& layout);

// The bytes of a part.
std::string SmallPart(const RunLayout& layout, const PartIdentity& part);

// Writes all parts of `manifest`, which has none, and names them in it. Then
// writes the manifest.
absl::Status PutSmallCheckpoint(ObjectStore& store,
                                storage::v1::MirrorManifest& manifest);

}  // namespace atl::mirror
