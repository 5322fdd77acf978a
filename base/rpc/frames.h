// HTTP/2 frame sizes for bulk data.

#pragma once

namespace atl::rpc {

// The largest frame that we accept: a chunk. By default frames have 16 KiB,
// each a slice of its own at both ends.
inline constexpr int kFrameBytesMax = 1 << 20;

// The same on bulk channels that we dial, so for pulls. While a frame arrives,
// gRPC counts its bytes both as received and as expected, and may let the peer
// send that many more. So a broken connection may waste one frame more.
inline constexpr int kPullFrameBytesMax = 128 << 10;

}  // namespace atl::rpc
