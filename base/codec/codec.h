// Encodings of outer gradients: what all of them have in common.
//
// Pure. Thread-safe: a codec has no state. No allocation.
//
// The unit is a block of the grid (block_grid.h): 1 to 4096 consecutive
// elements of one tensor. A block is encoded by itself, and the bytes of a
// block depend on nothing but its values and, for the stochastic codec, its
// BlockKey. How many bytes it takes is a function of its element count alone,
// whatever the values: every block's place in a chunk, in a file, in a segment
// is known before it is encoded, and a chunk is its blocks back to back.
//
//   codec            bits an element   ratio to f32   file
//   f32                     32               1        f32.h
//   bf16                    16               2        bf16.h
//   bf16 stochastic         16               2        bf16.h
//   int8                     8.0625          3.97     int8.h
//   E3M0                     4.03            7.94     e3m0.h
//   2 bits                   2.047          15.63     two_bit.h
//   top 64 + 2 bits          0.1523        210.05     top_k.h
//
// Each file states its wire format, its bound on the error and what it
// refuses. Encoders and decoders give the same bits on every path: the plain
// definitions (also for CUDA), AVX2 and AVX-512.
//
// Any bytes at all may be decoded: nothing is read or written outside the
// spans, and what decodes without a fault is finite. Values that are not finite
// are not encoded.

#ifndef BASE_CODEC_CODEC_H_
#define BASE_CODEC_CODEC_H_

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

// All of them, in order.
absl::Span<const CodecId> AllCodecs();

// "f32", "bf16", "bf16_stochastic", "int8", "e3m0", "two_bit", "top_k".
absl::string_view CodecName(CodecId id);

// Which code runs. kPlain is the definition.
enum class SimdPath { kPlain, kAvx2, kAvx512 };

// Those that this CPU can run, the slowest first; kPlain and kAvx2 always.
std::vector<SimdPath> SupportedPaths();

// "plain", "avx2", "avx512".
absl::string_view PathName(SimdPath path);

// Why a block was not encoded or decoded.
enum class BlockFault {
  kNone = 0,
  kNotFinite,   // A value, or what it decodes to, is NaN or infinite.
  kWrongSize,   // The bytes are not EncodedBytes(n), or n is not 1 to 4096.
  kBadScale,    // A scale that no encoder writes.
  kBadCode,     // A code that no encoder writes.
  kBadPadding,  // Bits past the last element are not 0.
  kBadIndex,    // An index past the last element.
};

// "has a value that is not finite" and the like.
absl::string_view FaultText(BlockFault fault);

// Keys the random bits of a block: the run's, contribution's or version's seed
// and the number of the block's first element in the fragment's flat order.
// Only kBf16Stochastic reads it.
struct BlockKey {
  uint64_t seed = 0;
  uint64_t first_element = 0;
};

// One codec on one path. All spans of values have the block's element count n.
class Codec {
 public:
  virtual ~Codec() = default;

  virtual CodecId id() const = 0;
  virtual SimdPath path() const = 0;

  // Bytes of a block of `element_count` (1 to 4096) elements.
  virtual size_t EncodedBytes(size_t element_count) const = 0;

  // q = Enc(values), to `encoded`, of EncodedBytes(n).
  // After a fault `encoded` is unspecified.
  virtual BlockFault Encode(const BlockKey& key, absl::Span<const float> values,
                            absl::Span<char> encoded) const = 0;

  // With error feedback, to `encoded` and `after`:
  //   e' = decay * before + gradient      (multiply, round, add, round)
  //   q  = Enc(e'),  after = e' - Dec(q)
  // `before` is not changed and may not overlap `after`; `gradient` may be
  // `after`. After a fault `encoded` and `after` are unspecified.
  virtual BlockFault EncodeWithFeedback(const BlockKey& key,
                                        absl::Span<const float> gradient,
                                        float decay,
                                        absl::Span<const float> before,
                                        absl::Span<float> after,
                                        absl::Span<char> encoded) const = 0;

  // values = Dec(encoded). After a fault `values` is unspecified; the same
  // holds for the two below.
  virtual BlockFault Decode(absl::string_view encoded,
                            absl::Span<float> values) const = 0;

  // values = weight * Dec(encoded): the first summand of a merge.
  virtual BlockFault DecodeScaled(absl::string_view encoded, float weight,
                                  absl::Span<float> values) const = 0;

  // sum = sum + weight * Dec(encoded): multiply, round, add, round. That the
  // sum is finite is not looked at.
  virtual BlockFault DecodeAccumulate(absl::string_view encoded, float weight,
                                      absl::Span<float> sum) const = 0;
};

// `id` on the fastest path of this CPU. Requires: `id` is one of AllCodecs().
const Codec& GetCodec(CodecId id);

// `id` on `path`, which is one of SupportedPaths().
const Codec& GetCodec(CodecId id, SimdPath path);

// The codec with this number, as it comes from a peer; null if there is none.
const Codec* FindCodec(int32_t number);

}  // namespace atl::codec

#endif  // BASE_CODEC_CODEC_H_
