// Unicode classes that pre-tokenizers use. Pure. Thread-safe.

#ifndef WORKER_DATA_UNICODE_CLASSES_H_
#define WORKER_DATA_UNICODE_CLASSES_H_

#include <cstdint>

namespace atl::worker {

bool IsUnicodeLetter(uint32_t code);  // General category L*: \p{L}.
bool IsUnicodeNumber(uint32_t code);  // General category N*: \p{N}.
bool IsUnicodeSpace(uint32_t code);   // White_Space: \s.

}  // namespace atl::worker

#endif  // WORKER_DATA_UNICODE_CLASSES_H_
