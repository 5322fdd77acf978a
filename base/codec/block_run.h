// Runs of blocks: what a chunk carries, encoded and decoded whole.
//
// Pure. Thread-safe. No allocation but for the message of an error.
//
// A run is consecutive blocks of a fragment's flat order; its encoding is its
// blocks' back to back. The callers know each block's element count from the
// layout (base/layout), so that nothing of it is sent.

#ifndef BASE_CODEC_BLOCK_RUN_H_
#define BASE_CODEC_BLOCK_RUN_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/codec/codec.h"

namespace atl::codec {

// Which blocks. N is the sum of `element_counts`.
struct BlockRun {
  int64_t first_block = 0;    // Its number, for messages.
  int64_t first_element = 0;  // In the fragment's flat order.
  uint64_t seed = 0;          // Of BlockKey; for the stochastic codec.
  absl::Span<const int32_t> element_counts;  // Each 1 to 4096.
};

// Bytes of the run's encoding. Requires: the counts are right.
size_t EncodedRunBytes(const Codec& codec, const BlockRun& run);

// Where one of several runs lies, which follow each other.
struct RunPlace {
  size_t element = 0;  // Its first value,
  size_t element_count = 0;
  size_t byte = 0;  // and the first byte of its encoding.
  size_t byte_count = 0;

  // What is its of the values, and of the bytes, of all.
  template <typename T>
  absl::Span<T> ValuesIn(absl::Span<T> all) const {
    return all.subspan(element, element_count);
  }
  absl::Span<char> BytesIn(absl::Span<char> all) const {
    return all.subspan(byte, byte_count);
  }
};

// Visits `runs` in order, to the first that `visit` has an error for: returns
// that. Requires: the counts are right.
absl::Status ForEachRun(
    const Codec& codec, absl::Span<const BlockRun> runs,
    absl::FunctionRef<absl::Status(const BlockRun& run, const RunPlace& place)>
        visit);

// Blocks of `run`, from its first, whose encodings fit in `bytes_max`.
size_t BlocksThatFit(const Codec& codec, const BlockRun& run, size_t bytes_max);

// Encodes `values`, shape [N], to `encoded`, of EncodedRunBytes.
//
// INVALID_ARGUMENT: a value is not finite, the message names the block; a size
// or a count is wrong.
absl::Status EncodeRun(const Codec& codec, const BlockRun& run,
                       absl::Span<const float> values,
                       absl::Span<char> encoded);

// The same with error feedback (Codec::EncodeWithFeedback); all spans have
// shape [N]. `before` is not changed, whatever happens.
absl::Status EncodeRunWithFeedback(const Codec& codec, const BlockRun& run,
                                   absl::Span<const float> gradient,
                                   float decay, absl::Span<const float> before,
                                   absl::Span<float> after,
                                   absl::Span<char> encoded);

// Decodes to `values`, shape [N].
//
// INVALID_ARGUMENT: `encoded` is not what an encoder writes; the message names
// the block. `values` is then unspecified.
absl::Status DecodeRun(const Codec& codec, const BlockRun& run,
                       absl::string_view encoded, absl::Span<float> values);

// values = weight * Dec(encoded). Errors as DecodeRun.
absl::Status DecodeScaledRun(const Codec& codec, const BlockRun& run,
                             absl::string_view encoded, float weight,
                             absl::Span<float> values);

// sum = sum + weight * Dec(encoded). Errors as DecodeRun.
absl::Status DecodeAccumulateRun(const Codec& codec, const BlockRun& run,
                                 absl::string_view encoded, float weight,
                                 absl::Span<float> sum);

}  // namespace atl::codec

#endif  // BASE_CODEC_BLOCK_RUN_H_
