// One PushOuterGradient stream: an island's contribution.

#pragma once

#include <memory>
#include <vector>

#include "grpcpp/server_context.h"
#include "server/service/upload_stream.h"

namespace atl::server {

class PushStream final : public UploadStream {
 public:
  // Starts the stream. What `context` refers to must outlive it.
  static PushStream* Start(grpc::CallbackServerContext* call,
                           const ServiceContext& context);

 private:
  PushStream(grpc::CallbackServerContext* call, const ServiceContext& context)
      : UploadStream(call, context) {}

  absl::StatusOr<Opened> Open(const grpc::ByteBuffer& message) override;
  std::unique_ptr<google::protobuf::MessageLite> MakeAnswer(
      const std::vector<IndexRange>& missing, bool stored) const override;
};

}  // namespace atl::server
