// Runs of blocks, as a chunk carries them, encoded and decoded as a whole.
// Pure. Thread-safe. Allocates only for error messages, and ForEachRun.
//
// A run is consecutive blocks of a fragment's flat order. Its encoding is the
// encodings of its blocks, back to back. Callers know each block's element
// count from the layout (base/layout), so counts are not sent.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/codec/codec.h"

namespace atl::codec {

// The blocks of a run. N is the sum of `element_counts`.
struct BlockRun {
  int64_t first_block = 0;    // Its block number, for messages.
  int64_t first_element = 0;  // In the fragment's flat order.
  uint64_t seed = 0;          // BlockKey::seed, for the stochastic codec.
  absl::Span<const int32_t> element_counts;  // Each 1 to 4096.
};

// Bytes of the run's encoding. Requires: every count is 1 to 4096.
size_t EncodedRunBytes(const Codec& codec, const BlockRun& run);

// The place of one run among several consecutive ones.
struct RunPlace {
  size_t element = 0;  // Index of the run's first value.
  size_t element_count = 0;
  size_t byte = 0;  // Offset of the first encoded byte.
  size_t byte_count = 0;

  // The part of `all` that belongs to this run.
  template <typename T>
  absl::Span<T> ValuesIn(absl::Span<T> all) const {
    return all.subspan(element, element_count);
  }
  absl::Span<char> BytesIn(absl::Span<char> all) const {
    return all.subspan(byte, byte_count);
  }
};

// Calls its argument for each index in [0, count), each once, in any order,
// maybe on several threads, and returns when all calls have.
using Loop =
    std::function<void(int64_t count, absl::FunctionRef<void(int64_t)>)>;
// On this thread.
void LoopInOrder(int64_t count, absl::FunctionRef<void(int64_t)> visit);

// Calls `visit` for each of `runs` in a `loop`. Returns the error of the first
// run that has one. Requires: every count is 1 to 4096.
absl::Status ForEachRun(
    const Loop& loop, const Codec& codec, absl::Span<const BlockRun> runs,
    absl::FunctionRef<absl::Status(const BlockRun& run, const RunPlace& place)>
        visit);

// Encodes `values`, shape [N], to `encoded`, of EncodedRunBytes bytes.
// INVALID_ARGUMENT: a value is not finite (the message names the block), or a
// size or a count is wrong.
absl::Status EncodeRun(const Codec& codec, const BlockRun& run,
                       absl::Span<const float> values,
                       absl::Span<char> encoded);

// The same with error feedback (Codec::EncodeWithFeedback). All spans of values
// have shape [N]. `before` never changes.
absl::Status EncodeRunWithFeedback(const Codec& codec, const BlockRun& run,
                                   absl::Span<const float> gradient,
                                   float decay, absl::Span<const float> before,
                                   absl::Span<float> after,
                                   absl::Span<char> encoded);

// Decodes to `values`, shape [N].
// INVALID_ARGUMENT: no encoder writes `encoded`; the message names the block.
// `values` is then unspecified.
absl::Status DecodeRun(const Codec& codec, const BlockRun& run,
                       absl::string_view encoded, absl::Span<float> values);

}  // namespace atl::codec
