// One stream that brings blocks of a contribution into the log: what
// PushOuterGradient and ImportParameters have in common. DESIGN.md, "A push",
// has its steps.
//
// Lives until gRPC is done with it, then deletes itself.

#ifndef SERVER_SERVICE_UPLOAD_STREAM_H_
#define SERVER_SERVICE_UPLOAD_STREAM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/rpc/chunk_codec.h"
#include "base/status/refusal.h"
#include "server/live_merge/live_upload.h"
#include "server/service/bidi_stream.h"
#include "server/service/service_context.h"

namespace atl::server {

class UploadStream : public BidiStream, private UploadSender {
 protected:
  // What the first message opened.
  struct Opened {
    Shard* shard = nullptr;
    // Null if there is nothing to bring any more: the answer is `stored`.
    std::shared_ptr<Contribution> contribution;
  };

  UploadStream(grpc::CallbackServerContext* call, const ServiceContext& context)
      : BidiStream(call, context.push_watchdog), context_(context) {}

  // Reads the header and admits it. The codes are those of the call.
  virtual absl::StatusOr<Opened> Open(const grpc::ByteBuffer& message) = 0;
  // The call's answer.
  virtual std::unique_ptr<google::protobuf::MessageLite> MakeAnswer(
      const std::vector<IndexRange>& missing, bool stored) const = 0;

  // The shard of `run_id`.
  //
  // INVALID_ARGUMENT: that is no id. NOT_FOUND: it is not held here.
  absl::StatusOr<Shard*> FindShard(const std::string& run_id) const;

 private:
  void OnMessage(const grpc::ByteBuffer& message) final;
  void OnEnd() final;
  void OnGone() final;
  std::unique_ptr<google::protobuf::MessageLite> StoredAnswer() const final {
    return MakeAnswer({}, true);
  }

  // Level ISLAND: live_merge/live_upload.h takes over.
  absl::Status BeginLive();
  void OnLiveMerge() final { live_->Begin(); }
  void OnRestart() final { live_->OnRestart(); }
  void OnTaken() final { live_->OnTaken(); }
  void OnRoom() final { live_->OnRoom(); }

  // UploadSender:
  void AskFor(const std::vector<IndexRange>& missing) final {
    Send(*MakeAnswer(missing, false));
  }
  void StopReading() final { Pause(); }
  void ReadOn() final { Resume(); }
  void EndWith(const absl::Status& status) final { FinishWith(status); }
  bool is_ending() const final { return finishing(); }

  // Where blocks go now.
  std::shared_ptr<Contribution> target() const {
    return live_ != nullptr ? live_->contribution() : contribution_;
  }
  absl::Status TakeHeader(const grpc::ByteBuffer& message);
  // May keep the payload of `chunk`.
  absl::Status TakeChunk(rpc::ReceivedChunk& chunk);
  // Whether it was put out of the run before it was listed.
  absl::Status CheckMember() const;
  // Checks that the chunk's numbers fit the contribution.
  absl::Status CheckChunk(const rpc::ReceivedChunk& chunk) const;
  // Checks the encoded blocks.
  absl::StatusOr<std::vector<BlockFact>> CheckBlocks(
      const rpc::ReceivedChunk& chunk, IndexRange blocks) const;
  // Keeps checked blocks in the log.
  absl::Status LogChunk(const rpc::ReceivedChunk& chunk, IndexRange blocks,
                        absl::Span<const BlockFact> facts);
  // If so, those that wait for missing blocks end.
  void EndIfNobodySends(bool nobody_sends);

  const ServiceContext& context_;
  Shard* shard_ = nullptr;
  std::shared_ptr<Contribution> contribution_;  // Set by the header.
  std::unique_ptr<LiveUpload> live_;  // At level ISLAND; set by the header.
};

// The header in the first message of a stream of `Request`s.
//
// INVALID_ARGUMENT: there is none.
template <typename Request>
auto ReadHeader(const grpc::ByteBuffer& message)
    -> absl::StatusOr<std::decay_t<decltype(Request().header())>> {
  absl::StatusOr<rpc::BulkMessage<Request>> decoded =
      rpc::DecodeBulk<Request>(message);
  if (!decoded.ok()) {
    return WithReasonIfNone(decoded.status(), "UNREADABLE_MESSAGE");
  }
  if (!decoded->message.has_header()) {
    return Refuse(absl::StatusCode::kInvalidArgument, "WRONG_ORDER",
                  "the first message must be the header");
  }
  return decoded->message.header();
}

// An answer that says which blocks are missing, or that all are stored.
template <typename Response>
std::unique_ptr<google::protobuf::MessageLite> UploadAnswer(
    const std::vector<IndexRange>& missing, bool stored) {
  // A message must stay small: what does not fit is named the next time.
  constexpr size_t kRangesMax = 65536;
  auto answer = std::make_unique<Response>();
  for (size_t i = 0; i < missing.size() && i < kRangesMax; ++i) {
    auto* range = answer->add_missing();
    range->set_begin(missing[i].begin);
    range->set_end(missing[i].end);
  }
  answer->set_stored(stored);
  return answer;
}

}  // namespace atl::server

#endif  // SERVER_SERVICE_UPLOAD_STREAM_H_
