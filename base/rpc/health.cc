#include "base/rpc/health.h"

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "base/rpc/status.h"
#include "base/status/status_macros.h"
#include "grpcpp/client_context.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "grpcpp/impl/codegen/rpc_method.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace atl::rpc {
namespace {

// HealthCheckResponse{status: SERVING}: field 1, varint 1. An empty message is
// status UNKNOWN. The request, for the whole server, is empty.
constexpr char kServing[] = {0x08, 0x01};

}  // namespace

absl::Status CheckServing(const std::shared_ptr<grpc::Channel>& channel,
                          absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  const grpc::internal::RpcMethod method("/grpc.health.v1.Health/Check",
                                         grpc::internal::RpcMethod::NORMAL_RPC);
  const grpc::Slice empty;
  const grpc::ByteBuffer request(&empty, 1);
  grpc::ByteBuffer response;
  RETURN_IF_ERROR(FromGrpc(
      grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer,
                                        grpc::ByteBuffer, grpc::ByteBuffer>(
          channel.get(), method, &context, request, &response)));
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (response.Dump(&slices).ok()) {
    for (const grpc::Slice& slice : slices) {
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
  }
  if (bytes != std::string(kServing, sizeof(kServing))) {
    return absl::UnavailableError("it is up, but does not serve yet");
  }
  return absl::OkStatus();
}

}  // namespace atl::rpc
