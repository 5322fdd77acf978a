// How HTTP/2 carries bulk data.

#ifndef BASE_RPC_FRAMES_H_
#define BASE_RPC_FRAMES_H_

namespace atl::rpc {

// What we let a peer put into one frame: a chunk. By default frames are of 16
// KiB, each a slice of its own at both ends.
inline constexpr int kFrameBytesMax = 1 << 20;

// The same where we dial for bulk, so of pulls. While a frame arrives gRPC
// counts its bytes as taken and as still to come, and may let the peer send as
// many more: what a cut can cost grows by a frame.
inline constexpr int kPullFrameBytesMax = 128 << 10;

}  // namespace atl::rpc

#endif  // BASE_RPC_FRAMES_H_
