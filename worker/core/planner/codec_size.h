// How many bytes a fragment takes on the wire, codec by codec.
//
// Pure. Thread-safe. The one table that the planner takes such numbers from.

#ifndef WORKER_CORE_PLANNER_CODEC_SIZE_H_
#define WORKER_CORE_PLANNER_CODEC_SIZE_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace atl::worker::planner {

// An encoding of outer gradients or of what servers send back.
enum class WireCodec {
  kF32,     // 4 bytes an element.
  kBf16,    // 2.
  kInt8,    // 1, and a scale for every so many elements.
  kE3m0,    // Half a byte, and scales.
  kTwoBit,  // A quarter, and scales.
  kTopK,    // 64 of 4096 with 2 bits each, scales, entropy-coded indices.
};

// All of them, in order.
absl::Span<const WireCodec> AllWireCodecs();

// "f32", "bf16", "int8", "e3m0", "two_bit", "top_k".
absl::string_view WireCodecName(WireCodec codec);

// The codec of that name.
std::optional<WireCodec> FindWireCodec(absl::string_view name);

// Bytes of `element_count` (>= 0) consecutive elements of one tensor: whole
// blocks of 4096 and one shorter one, scales counted. Headers and checksums of
// chunks (some 50 bytes a MiB) are not.
int64_t EncodedBytes(WireCodec codec, int64_t element_count);

}  // namespace atl::worker::planner

#endif  // WORKER_CORE_PLANNER_CODEC_SIZE_H_
