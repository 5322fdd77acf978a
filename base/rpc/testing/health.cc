#include "base/rpc/testing/health.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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
// status UNKNOWN.
constexpr char kServing[] = {0x08, 0x01};

// HealthCheckRequest{service}: field 1, a string of less than 128 bytes. For
// the whole server it is empty.
std::string RequestFor(absl::string_view service) {
  if (service.empty()) return "";
  return absl::StrCat("\n", std::string(1, static_cast<char>(service.size())),
                      service);
}

}  // namespace

absl::Status CheckServing(const std::shared_ptr<grpc::Channel>& channel,
                          absl::Duration timeout, absl::string_view service) {
  if (service.size() > 127) {
    return absl::InvalidArgumentError("the service's name is too long");
  }
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  const grpc::internal::RpcMethod method("/grpc.health.v1.Health/Check",
                                         grpc::internal::RpcMethod::NORMAL_RPC);
  const grpc::Slice slice(RequestFor(service));
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  RETURN_IF_ERROR(FromGrpc(
      grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer,
                                        grpc::ByteBuffer, grpc::ByteBuffer>(
          channel.get(), method, &context, request, &response)));
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (response.Dump(&slices).ok()) {
    for (const grpc::Slice& part : slices) {
      bytes.append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
  }
  if (bytes != std::string(kServing, sizeof(kServing))) {
    return absl::UnavailableError("it is up, but not serving");
  }
  return absl::OkStatus();
}

}  // namespace atl::rpc
