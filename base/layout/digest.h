// Digests of parameters, independent of how they are sharded. Pure.
// Thread-compatible.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "atoll/v1/plan.pb.h"
#include "base/layout/layout.h"

namespace atl {

// 128-bit integer; addition is modulo 2^128.
struct Digest128 {
  uint64_t high = 0;
  uint64_t low = 0;

  Digest128& operator+=(const Digest128& other);
  friend bool operator==(const Digest128&, const Digest128&) = default;

  v1::Digest ToProto() const;
  static Digest128 FromProto(const v1::Digest& digest);
  // 32 lower-case hex digits.
  std::string ToHex() const;
  // Null if `hex` is not in the format of ToHex.
  static std::optional<Digest128> FromHex(absl::string_view hex);
};

// XXH3-128 of a block's bytes (elements are little-endian), seeded with the
// block's number in its fragment. If several processes push one contribution,
// ContributionInfo.digest is the sum over the digests of its encoded blocks:
// the sum does not depend on the number of processes.
Digest128 BlockDigest(int64_t block, absl::Span<const char> bytes);
Digest128 BlockDigest(int64_t block, absl::Span<const float> elements);

// Sum of BlockDigest over `blocks` of `fragment`. `elements` are the elements
// of these blocks, shape [layout.BlockElements(fragment, blocks)].
Digest128 RangeDigest(const RunLayout& layout, int32_t fragment,
                      IndexRange blocks, absl::Span<const float> elements);

// XXH3-128, seed 0, of an encoded contribution: ContributionInfo.digest if one
// process pushes the whole contribution.
Digest128 ContributionDigest(absl::Span<const char> encoded);

// SHA-256 (64 hex digits) over the SHA-256 of each block's little-endian f32
// bytes. Blocks and `elements`, shape [layout.element_count()], are in the
// model order.
std::string ParametersSha256(const RunLayout& layout,
                             absl::Span<const float> elements);

}  // namespace atl
