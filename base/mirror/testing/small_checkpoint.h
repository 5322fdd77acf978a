// A small run and a checkpoint of it, for tests. Pure.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/storage/v1/mirror_manifest.pb.h"
#include "atoll/v1/run.pb.h"
#include "base/layout/layout.h"
#include "base/mirror/mirror_names.h"
#include "base/mirror/part_format.h"

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

}  // namespace atl::mirror
