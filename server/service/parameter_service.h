// ParameterService, a reactor a stream, bulk messages as slices. Thread-safe.

#pragma once

#include "atoll/v1/parameter_service.grpc.pb.h"
#include "server/service/service_context.h"

namespace atl::server {

class ParameterServiceImpl final
    : public v1::ParameterService::WithRawCallbackMethod_PushOuterGradient<
          v1::ParameterService::WithRawCallbackMethod_PullParameters<
              v1::ParameterService::WithRawCallbackMethod_ImportParameters<
                  v1::ParameterService::WithRawCallbackMethod_PullKept<
                      v1::ParameterService::Service>>>> {
 public:
  // The objects that `context` refers to must outlive the gRPC server.
  explicit ParameterServiceImpl(const ServiceContext& context)
      : context_(context) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
  PushOuterGradient(grpc::CallbackServerContext* call) override;

  grpc::ServerWriteReactor<grpc::ByteBuffer>* PullParameters(
      grpc::CallbackServerContext* call,
      const grpc::ByteBuffer* request) override;

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ImportParameters(
      grpc::CallbackServerContext* call) override;

  grpc::ServerWriteReactor<grpc::ByteBuffer>* PullKept(
      grpc::CallbackServerContext* call,
      const grpc::ByteBuffer* request) override;

 private:
  const ServiceContext context_;
};

}  // namespace atl::server
