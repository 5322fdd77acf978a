// libFuzzer's entry to FuzzEncode: see run_fuzzers.sh.

#include <cstddef>
#include <cstdint>

#include "base/codec/testing/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  atl::codec::FuzzEncode(data, size);
  return 0;
}
