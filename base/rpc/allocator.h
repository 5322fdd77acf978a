// How the heap of a program that moves bulk data is set up.

#ifndef BASE_RPC_ALLOCATOR_H_
#define BASE_RPC_ALLOCATOR_H_

#include <malloc.h>

namespace atl::rpc {

// Large blocks stay in the heap: by default the library hands the slices that
// gRPC receives into back to the kernel, and faulting them in again with the
// next message costs more than moving the bytes. For a main, before it starts
// threads. A program without glibc's malloc has nothing to set.
inline void TuneAllocator() {
  mallopt(M_MMAP_THRESHOLD, 8 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
  mallopt(M_TOP_PAD, 16 << 20);
}

}  // namespace atl::rpc

#endif  // BASE_RPC_ALLOCATOR_H_
