// Converts absl::Status to grpc::Status and back.
//
// Codes have the same numbers on both sides. Payloads whose key is a type URL
// (base/status/refusal.h) travel as google.rpc.Status in the trailer
// `grpc-status-details-bin`, the gRPC convention.
//
// Trailers must be small. Messages are truncated to kStatusMessageBytesMax;
// details beyond kStatusDetailsBytesMax are dropped, the largest first.
//
// Pure. Thread-safe.

#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace atl::rpc {

inline constexpr size_t kStatusMessageBytesMax = 1024;
inline constexpr size_t kStatusDetailsBytesMax = 4096;

grpc::Status ToGrpc(const absl::Status& status);

// An unknown code becomes UNKNOWN; unreadable details are dropped. A
// RESOURCE_EXHAUSTED of gRPC itself that passes gets a RetryInfo.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace atl::rpc
