// One ImportParameters stream: a fragment of version 0, stored like a
// contribution until it is complete (server/DESIGN.md, An import).

#pragma once

#include <memory>
#include <vector>

#include "grpcpp/server_context.h"
#include "server/service/upload_stream.h"

namespace atl::server {

class ImportStream final : public UploadStream {
 public:
  // Starts the stream. What `context` refers to must outlive it.
  static ImportStream* Start(grpc::CallbackServerContext* call,
                             const ServiceContext& context);

 private:
  ImportStream(grpc::CallbackServerContext* call, const ServiceContext& context)
      : UploadStream(call, context) {}

  absl::StatusOr<Opened> Open(const grpc::ByteBuffer& message) override;
  std::unique_ptr<google::protobuf::MessageLite> MakeAnswer(
      const std::vector<IndexRange>& missing, bool stored) const override;
};

}  // namespace atl::server
