// One ImportParameters stream: writes a fragment of version 0.
//
// The blocks go into a file of their own, in any order, and are forgotten if
// the process dies before all of them are there: an import starts over. One
// stream imports a fragment at a time.
//
// Lives until gRPC is done with it, then deletes itself.

#ifndef SERVER_SERVICE_IMPORT_STREAM_H_
#define SERVER_SERVICE_IMPORT_STREAM_H_

#include <memory>
#include <vector>

#include "atoll/v1/parameter_service.pb.h"
#include "base/layout/digest.h"
#include "base/rpc/chunk_codec.h"
#include "grpcpp/server_context.h"
#include "server/service/bidi_stream.h"
#include "server/service/service_context.h"

namespace atl::server {

class ImportStream final : public BidiStream {
 public:
  static ImportStream* Start(grpc::CallbackServerContext* call,
                             const ServiceContext& context);

 private:
  ImportStream(grpc::CallbackServerContext* call,
               const ServiceContext& context);

  void OnMessage(const grpc::ByteBuffer& message) override;
  void OnEnd() override;
  void OnGone() override;
  std::unique_ptr<google::protobuf::MessageLite> StoredAnswer() const override;

  absl::Status TakeHeader(const v1::ImportHeader& header);
  absl::Status TakeChunk(const rpc::ReceivedChunk& chunk);
  absl::Status CheckChunk(const rpc::ReceivedChunk& chunk) const;
  // All blocks are there: checks the digest, publishes and persists.
  absl::Status Complete();

  grpc::CallbackServerContext* const call_;
  const ServiceContext& context_;
  Shard* shard_ = nullptr;
  int32_t fragment_ = -1;
  bool holds_claim_ = false;  // The fragment's import is this stream's.
  Digest128 expected_;
  Digest128 digest_;  // Of the blocks that are there.
  std::shared_ptr<VersionFile> file_;
  std::vector<bool> present_;
  int64_t absent_count_ = 0;
};

}  // namespace atl::server

#endif  // SERVER_SERVICE_IMPORT_STREAM_H_
