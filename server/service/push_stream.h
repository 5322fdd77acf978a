// One PushOuterGradient stream. DESIGN.md, "A push", has its steps.
//
// Lives until gRPC is done with it, then deletes itself.

#ifndef SERVER_SERVICE_PUSH_STREAM_H_
#define SERVER_SERVICE_PUSH_STREAM_H_

#include <memory>

#include "atoll/v1/parameter_service.pb.h"
#include "base/rpc/chunk_codec.h"
#include "grpcpp/server_context.h"
#include "server/service/bidi_stream.h"
#include "server/service/service_context.h"

namespace atl::server {

class PushStream final : public BidiStream {
 public:
  // Starts the stream; `server` must outlive it.
  static PushStream* Start(grpc::CallbackServerContext* call,
                           const ServiceContext& context);

 private:
  PushStream(grpc::CallbackServerContext* call, const ServiceContext& context);

  void OnMessage(const grpc::ByteBuffer& message) override;
  void OnEnd() override;
  void OnGone() override;
  std::unique_ptr<google::protobuf::MessageLite> StoredAnswer() const override;

  absl::Status TakeHeader(const v1::PushHeader& header);
  absl::Status TakeChunk(const rpc::ReceivedChunk& chunk);
  // Checks that the chunk's numbers fit the contribution.
  absl::Status CheckChunk(const rpc::ReceivedChunk& chunk) const;
  // Copies, checks and writes the blocks.
  absl::Status StoreChunk(const rpc::ReceivedChunk& chunk, IndexRange blocks,
                          float* elements);
  // Nobody sends any more: those that wait for missing blocks end.
  void EndIfNobodySends(int sending_count);

  grpc::CallbackServerContext* const call_;
  const ServiceContext& context_;
  Shard* shard_ = nullptr;
  std::shared_ptr<Contribution> contribution_;  // Set by the header.
  bool sending_ = false;  // Counted in the shard's waiters.
};

}  // namespace atl::server

#endif  // SERVER_SERVICE_PUSH_STREAM_H_
