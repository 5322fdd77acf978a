// What the fuzzers hold of the codecs, for one input.
//
// Thread-safe. A violation ends the process.
//
// The first byte chooses the codec, the next two the element count n, the rest
// is repeated as often as it takes. Every path of this CPU is run, each on
// memory of exactly the size it may touch, so that AddressSanitizer sees what
// lies outside.

#ifndef BASE_CODEC_FUZZ_TARGETS_H_
#define BASE_CODEC_FUZZ_TARGETS_H_

#include <cstddef>
#include <cstdint>

namespace atl::codec {

// Any bytes as an encoded block: all paths agree on the fault, or on the bits
// of values that are all finite, in all three forms.
void FuzzDecode(const uint8_t* data, size_t size);

// Any bits as values and as old residuals: all paths agree on the fault, or on
// the bytes and residuals; what is encoded decodes, and the residual is what is
// missing.
void FuzzEncode(const uint8_t* data, size_t size);

}  // namespace atl::codec

#endif  // BASE_CODEC_FUZZ_TARGETS_H_
