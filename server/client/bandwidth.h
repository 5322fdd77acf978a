// What an island, all its processes together, may use of its link, each way.
//
// A cap counts payload: the bytes of encoded elements in chunks, repeats
// included. What frames them (a chunk's header and checksum, HTTP/2, TCP/IP: 4
// to 6 % on Ethernet), control messages and heartbeats come on top.

#ifndef SERVER_CLIENT_BANDWIDTH_H_
#define SERVER_CLIENT_BANDWIDTH_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace atl::server {

// 100 kb/s: below it servers may take an island's streams for dead.
inline constexpr double kCapBytesPerSecondMin = 12500;

// Bytes a second over all shards and streams; 0 for no cap.
struct BandwidthCaps {
  double up_bytes_per_second = 0;
  double down_bytes_per_second = 0;
};

// The part of `caps` for one of several processes that are capped together and
// hold a model between them: as large as what it holds, `held` of `all` elements
// (0 <= held <= all, all >= 1), so that parts add up to the caps and what moves
// once for each element takes all of them equally long. Who holds nothing moves
// nothing, and is not capped.
inline BandwidthCaps PartOf(const BandwidthCaps& caps, int64_t held,
                            int64_t all) {
  const double share = static_cast<double>(held) / static_cast<double>(all);
  return {.up_bytes_per_second = share * caps.up_bytes_per_second,
          .down_bytes_per_second = share * caps.down_bytes_per_second};
}

// INVALID_ARGUMENT: a cap is neither 0 nor at least kCapBytesPerSecondMin.
inline absl::Status CheckCaps(const BandwidthCaps& caps) {
  for (const double cap :
       {caps.up_bytes_per_second, caps.down_bytes_per_second}) {
    if (cap != 0 && !(cap >= kCapBytesPerSecondMin)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a bandwidth cap of ", cap, " bytes a second is less than ",
          kCapBytesPerSecondMin, ", the least that keeps streams alive"));
    }
  }
  return absl::OkStatus();
}

}  // namespace atl::server

#endif  // SERVER_CLIENT_BANDWIDTH_H_
