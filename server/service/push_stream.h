// The streams that bring blocks: PushOuterGradient, an island's contribution,
// and ImportParameters, a fragment of version 0, which is stored like a
// contribution until it is complete (server/DESIGN.md, An import).

#pragma once

#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/service/service_context.h"

namespace atl::server {

using BlockReactor =
    grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// Starts a stream. The objects that `context` refers to must outlive it.
BlockReactor* StartPush(grpc::CallbackServerContext* call,
                        const ServiceContext& context);
BlockReactor* StartImport(grpc::CallbackServerContext* call,
                          const ServiceContext& context);

}  // namespace atl::server
