#include "base/rpc/testing/raw_calls.h"

#include <future>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/slice.h"
#include "grpcpp/support/status.h"

namespace atl::rpc {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(2);

}  // namespace

grpc::StatusCode CallAny(const std::shared_ptr<grpc::Channel>& channel,
                         const std::string& method, const std::string& bytes) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  std::promise<grpc::StatusCode> code;
  stub.UnaryCall(&context, method, {}, &request, &response,
                 [&](const grpc::Status& status) {
                   code.set_value(status.error_code());
                 });
  return code.get_future().get();
}

}  // namespace atl::rpc
