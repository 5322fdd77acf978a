// The codecs' properties that the fuzzers check, for one input. Thread-safe. A
// violation ends the process.
//
// The first byte chooses the codec, the next two the element count n; the rest
// is repeated as needed. Every path of this CPU runs on memory of exactly the
// allowed size, so that AddressSanitizer detects any access outside.

#pragma once

#include <cstddef>
#include <cstdint>

namespace atl::codec {

// Decodes any bytes as a block. All paths agree on the fault, or on the bits of
// the values, all finite, in all three forms.
void FuzzDecode(const uint8_t* data, size_t size);

// Encodes any bits as values and as old residuals. All paths agree on the
// fault, or on the bytes and residuals. Encoded bytes decode, and the residual
// is the encoding's error.
void FuzzEncode(const uint8_t* data, size_t size);

}  // namespace atl::codec
