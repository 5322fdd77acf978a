// Measures how fast a TlsStream carries bytes one way: one side sends messages
// for a while, the other counts them. An empty message is the last one.
//
// Thread-compatible, as the stream. Memory: one message.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/rpc/tls_stream/tls_stream.h"

namespace atl::rpc {

// The bounds of a probe of a gate (proto/atoll/v1/enrolment.proto).
inline constexpr absl::Duration kLinkLoadTime = absl::Seconds(2);
inline constexpr int64_t kLinkLoadBytesMax = int64_t{64} << 20;

struct LinkLoad {
  int64_t bytes = 0;    // Received, without the lengths of messages.
  absl::Duration span;  // From the first message to the last.
};

// Sends messages for `time`, together at most `bytes_max`, and an empty one.
// Errors as TlsStream.
absl::Status SendLoad(TlsStream& stream, absl::Duration time,
                      int64_t bytes_max);

// Receives messages up to an empty one.
// INVALID_ARGUMENT: they have more than `bytes_max`, or take longer than twice
// kLinkLoadTime. Others as TlsStream.
absl::StatusOr<LinkLoad> ReceiveLoad(TlsStream& stream, int64_t bytes_max);

}  // namespace atl::rpc
