// How HTTP/2 carries bulk data.

#ifndef BASE_RPC_FRAMES_H_
#define BASE_RPC_FRAMES_H_

namespace atl::rpc {

// What we let a peer put into one frame: a chunk. By default frames are of 16
// KiB, each a slice of its own at both ends.
inline constexpr int kFrameBytesMax = 1 << 20;

}  // namespace atl::rpc

#endif  // BASE_RPC_FRAMES_H_
