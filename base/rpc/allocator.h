// Heap settings for programs that move bulk data.

#pragma once

#include <malloc.h>

namespace atl::rpc {

// Keeps large blocks in the heap. By default malloc returns the slices that
// gRPC receives into to the kernel, and faulting them in again costs more than
// moving the bytes. Call it in main before threads start. Only for glibc's
// malloc; other allocators need nothing.
inline void TuneAllocator() {
  mallopt(M_MMAP_THRESHOLD, 8 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
  mallopt(M_TOP_PAD, 16 << 20);
}

}  // namespace atl::rpc
