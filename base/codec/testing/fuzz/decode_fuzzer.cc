// libFuzzer's entry to FuzzDecode: see run_fuzzers.sh.

#include <cstddef>
#include <cstdint>

#include "base/codec/testing/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  atl::codec::FuzzDecode(data, size);
  return 0;
}
