#include "server/service/parameter_service.h"

#include "server/service/pull_stream.h"
#include "server/service/push_stream.h"

namespace atl::server {

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
ParameterServiceImpl::PushOuterGradient(grpc::CallbackServerContext* call) {
  return StartPush(call, context_);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>*
ParameterServiceImpl::PullParameters(grpc::CallbackServerContext* call,
                                     const grpc::ByteBuffer* request) {
  return PullStream::Start(call, *request, context_);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
ParameterServiceImpl::ImportParameters(grpc::CallbackServerContext* call) {
  return StartImport(call, context_);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ParameterServiceImpl::PullKept(
    grpc::CallbackServerContext* call, const grpc::ByteBuffer* request) {
  return PullStream::StartKept(call, *request, context_);
}

}  // namespace atl::server
