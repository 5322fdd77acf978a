// The bytes of a part (base/mirror/DESIGN.md). Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/layout/layout.h"
#include "base/mirror/mirror_names.h"

namespace atl::mirror {

inline constexpr char kThetaName[] = "theta";
inline constexpr char kReplicaName[] = "replica";

// Names of a version's arrays: theta, `optimizer_state_count` (0 to 2) of the
// outer optimizer, the replica.
std::vector<std::string> ArrayNames(int optimizer_state_count,
                                    bool has_replica);

struct PartIdentity {
  CheckpointPlace place;
  int32_t shard = 0;
  int32_t shard_count = 0;
  int32_t fragment = 0;
  int64_t version = 0;                   // The fragment's, in the cut.
  std::vector<std::string> array_names;  // As ArrayNames.
};

// A run of elements of one tensor.
struct PartRange {
  int32_t tensor = 0;   // Index in the layout.
  IndexRange elements;  // In the tensor.
};

// The tensors' ranges that a part has, in the fragment's flat order. Empty: the
// shard has no blocks of the fragment, and there is no part.
std::vector<PartRange> PartRanges(const RunLayout& layout,
                                  const PartIdentity& part);

// Elements of one array of a part.
int64_t PartElementCount(const RunLayout& layout, const PartIdentity& part);

// The part's bytes before its data.
std::string PartHeader(const RunLayout& layout, const PartIdentity& part);

}  // namespace atl::mirror
