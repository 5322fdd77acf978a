// absl::Status to grpc::Status and back: the one place that does it.
//
// Codes have the same numbers on both sides. Payloads of an absl::Status whose
// key is a type URL (base/rpc/status_details.h) travel as google.rpc.Status in
// the trailer `grpc-status-details-bin`, as any gRPC client expects them.
//
// Trailers are small: a message is cut to kStatusMessageBytesMax, and details
// past kStatusDetailsBytesMax are left out, the largest first.
//
// Pure. Thread-safe.

#ifndef BASE_RPC_STATUS_H_
#define BASE_RPC_STATUS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace atl::rpc {

inline constexpr size_t kStatusMessageBytesMax = 1024;
inline constexpr size_t kStatusDetailsBytesMax = 4096;

grpc::Status ToGrpc(const absl::Status& status);

// A code that absl does not know becomes UNKNOWN; details that cannot be read
// are dropped.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace atl::rpc

#endif  // BASE_RPC_STATUS_H_
