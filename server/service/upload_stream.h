// One stream that brings blocks of a contribution: the common part of
// PushOuterGradient and ImportParameters (server/DESIGN.md, A push). Deletes
// itself when gRPC is done with it.

#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/rpc/chunk_codec.h"
#include "server/service/bidi_stream.h"
#include "server/service/live_upload.h"
#include "server/service/service_context.h"

namespace atl::server {

class UploadStream : public BidiStream {
 public:
  UploadStream(grpc::CallbackServerContext* call, const ServiceContext& context)
      : BidiStream(call, context.push_watchdog), context_(context) {}
  using BidiStream::Begin;

 protected:
  struct Opened {
    std::shared_ptr<Shard> shard;
    // Null if nothing is missing: the answer is `stored`.
    std::shared_ptr<Contribution> contribution;
  };

  // Parses and admits the header. Errors as the call's.
  virtual absl::StatusOr<Opened> Open(const grpc::ByteBuffer& message) = 0;

  // INVALID_ARGUMENT: `run_id` is not an id. NOT_FOUND: no shard of it is here.
  absl::StatusOr<std::shared_ptr<Shard>> FindShard(
      const std::string& run_id) const;
  // OK if the caller may touch the run, which is watched from then on.
  absl::Status Admit(const rpc::Caller& caller, const std::string& run_id,
                     const Shard& shard);

 private:
  void OnMessage(const grpc::ByteBuffer& message) final;
  void OnEnd() final;
  void OnGone() final;

  // Level ISLAND: hands over to live_upload.h.
  absl::Status BeginLive();
  void OnLiveMerge() final { live_->Begin(); }
  void OnRestart() final { live_->OnRestart(); }
  void OnTaken() final { live_->OnTaken(); }
  void OnBudget() final { live_->OnBudget(); }

  // The contribution that blocks go to now.
  std::shared_ptr<Contribution> target() const {
    return live_ != nullptr ? live_->contribution() : contribution_;
  }
  absl::Status TakeHeader(const grpc::ByteBuffer& message);
  // May keep the payload of `chunk`.
  absl::Status TakeChunk(rpc::ReceivedChunk& chunk);
  // Before the stream was listed, the run may have been deleted, or the island
  // may have left it.
  absl::Status CheckMember() const;
  absl::Status CheckChunk(const rpc::ReceivedChunk& chunk) const;
  absl::StatusOr<std::vector<BlockFact>> CheckBlocks(
      const rpc::ReceivedChunk& chunk, IndexRange blocks) const;
  absl::Status LogChunk(const rpc::ReceivedChunk& chunk, IndexRange blocks,
                        absl::Span<const BlockFact> facts);
  // If true, ends the streams that wait for missing blocks.
  void EndIfNobodySends(bool nobody_sends);

  const ServiceContext& context_;
  std::shared_ptr<Shard> shard_;  // Outlives what follows.
  std::shared_ptr<Contribution> contribution_;  // Set by the header.
  std::unique_ptr<LiveUpload> live_;  // At level ISLAND; set by the header.
};

}  // namespace atl::server
