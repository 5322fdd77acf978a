// The common interface of the codecs: encodings of outer gradients. Pure.
// Thread-safe: a codec has no state. No allocation.
//
// The unit is a block of the grid (block_grid.h): 1 to 4096 consecutive
// elements of one tensor. Each block is encoded independently. Its bytes depend
// only on its values and, for the stochastic codec, on its BlockKey. Its size
// is a function of its element count alone. So every block's offset in a chunk,
// file or segment is known before encoding. A chunk is its blocks back to back.
//
// Each codec's header states its wire format, error bound and what it refuses.
// base/DESIGN.md, Codecs, compares their sizes. All paths give the same bits:
// the plain definitions (also for CUDA), AVX2 and AVX-512. Decoding accepts any
// bytes: it accesses nothing outside the spans, and values decoded without a
// fault are finite.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace atl::codec {

// The numbers are those of atoll.v1.Codec.
enum class CodecId : int32_t {
  kF32 = 1,
  kBf16 = 2,
  kBf16Stochastic = 3,
  kInt8 = 4,
  kE3m0 = 5,
  kTwoBit = 6,
  kTopK = 7,
};

// All codecs, in the order of their numbers.
absl::Span<const CodecId> AllCodecs();

// "f32", "bf16", "bf16_stochastic", "int8", "e3m0", "two_bit", "top_k".
absl::string_view CodecName(CodecId id);

// The code that runs. kPlain is the definition.
enum class SimdPath { kPlain, kAvx2, kAvx512 };

// The paths that this CPU can run, slowest first. kPlain and kAvx2 always.
std::vector<SimdPath> SupportedPaths();

// "plain", "avx2", "avx512".
absl::string_view PathName(SimdPath path);

// Why a block cannot be encoded or decoded.
enum class BlockFault {
  kNone = 0,
  kNotFinite,   // A value or a decoded value is NaN or infinite.
  kWrongSize,   // The bytes are not EncodedBytes(n), or n is not 1 to 4096.
  kBadScale,    // No encoder writes this scale.
  kBadCode,     // No encoder writes this code.
  kBadPadding,  // Bits past the last element are not 0.
  kBadIndex,    // An index past the last element.
};

// For a message: "has a value that is not finite" and the like.
absl::string_view FaultText(BlockFault fault);

// Keys the random bits of a block. `seed` is the run's, contribution's or
// version's; `first_element` is in the fragment's flat order. Only
// kBf16Stochastic reads it.
struct BlockKey {
  uint64_t seed = 0;
  uint64_t first_element = 0;
};

// One codec on one path. Every span of values has the block's element count n.
class Codec {
 public:
  virtual ~Codec() = default;

  virtual CodecId id() const = 0;
  virtual SimdPath path() const = 0;

  // Encoded bytes of a block of `element_count` (1 to 4096) elements.
  virtual size_t EncodedBytes(size_t element_count) const = 0;

  // q = Enc(values). `encoded` has EncodedBytes(n) bytes. After a fault it is
  // unspecified.
  virtual BlockFault Encode(const BlockKey& key, absl::Span<const float> values,
                            absl::Span<char> encoded) const = 0;

  // Encodes with error feedback, to `encoded` and `after`:
  //   e' = decay * before + gradient      (multiply, round, add, round)
  //   q  = Enc(e'),  after = e' - Dec(q)
  // Does not change `before`, which must not overlap `after`. `gradient` may be
  // `after`. After a fault `encoded` and `after` are unspecified.
  virtual BlockFault EncodeWithFeedback(const BlockKey& key,
                                        absl::Span<const float> gradient,
                                        float decay,
                                        absl::Span<const float> before,
                                        absl::Span<float> after,
                                        absl::Span<char> encoded) const = 0;

  // values = Dec(encoded). After a fault of this method or of the two below,
  // the output span is unspecified.
  virtual BlockFault Decode(absl::string_view encoded,
                            absl::Span<float> values) const = 0;

  // values = weight * Dec(encoded): the first summand of a merge.
  virtual BlockFault DecodeScaled(absl::string_view encoded, float weight,
                                  absl::Span<float> values) const = 0;

  // sum = sum + weight * Dec(encoded): multiply, round, add, round. Does not
  // check that the sum is finite.
  virtual BlockFault DecodeAccumulate(absl::string_view encoded, float weight,
                                      absl::Span<float> sum) const = 0;
};

// The codec on this CPU's fastest path. Requires: `id` is one of AllCodecs().
const Codec& GetCodec(CodecId id);

// The codec on `path`. Requires: `path` is one of SupportedPaths().
const Codec& GetCodec(CodecId id, SimdPath path);

// Returns the codec with this atoll.v1.Codec number on the fastest path; null
// for an unknown number. `number` may come from a peer.
const Codec* FindCodec(int32_t number);

}  // namespace atl::codec
