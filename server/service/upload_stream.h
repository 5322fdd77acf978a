// One stream that brings blocks of a contribution into the log: what
// PushOuterGradient and ImportParameters have in common. DESIGN.md, "A push",
// has its steps.
//
// Lives until gRPC is done with it, then deletes itself.

#ifndef SERVER_SERVICE_UPLOAD_STREAM_H_
#define SERVER_SERVICE_UPLOAD_STREAM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/rpc/chunk_codec.h"
#include "base/status/refusal.h"
#include "base/sync/mutex.h"
#include "server/live_merge/receive_budget.h"
#include "server/service/bidi_stream.h"
#include "server/service/service_context.h"

namespace atl::server {

class UploadStream : public BidiStream {
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

  // Level ISLAND: the blocks are asked for when a set with the contribution is
  // gathered, and `stored` is said when its round is committed.
  void OnLiveMerge() final { BeginLiveMerge(); }
  void OnRestart() final;
  void OnTaken() final;
  void OnRoom() final;
  // Asks for the blocks, once, or waits at the header until there is room.
  void BeginLiveMerge();
  void AskForMissing();
  absl::Status OfferChunk(rpc::ReceivedChunk& chunk, IndexRange blocks,
                          std::vector<BlockFact> facts);
  struct Offered;
  void OfferCells(const Shard::LiveMerge& live_merge,
                  const std::vector<int64_t>& cells,
                  std::shared_ptr<Offered> offered, bool at_once);
  // True if what is read next has room: what was taken for it, or what needs
  // none. Else it takes a turn, and OnRoom comes.
  bool HasRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(live_merge_mutex_);
  // It waits for room no more, if it did.
  void EndTicket() ABSL_EXCLUSIVE_LOCKS_REQUIRED(live_merge_mutex_);
  // The stream brings blocks to what is gathered, if there is room.
  bool JoinLiveMerge() ABSL_EXCLUSIVE_LOCKS_REQUIRED(live_merge_mutex_);
  // True if it was not read, and is now: Resume has to be called.
  bool ReadsOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(live_merge_mutex_);
  // After a chunk: the next one is not read while too many wait for their turn
  // or there is no room for it.
  void ReadOnOrPause(const Shard::LiveMerge& live_merge);
  // Room for bytes of the contribution that wait, of what was taken before they
  // were read or else; none if there is none, unless the round needs them to go
  // on. `begins_cell`: they wait for the rest of their cell, so few are let in
  // beyond the bound.
  std::optional<ReceiveBudget::Hold> TakeRoom(const Shard::LiveMerge& live_merge,
                                          int64_t bytes, bool begins_cell);
  // This stream brings nothing more to the round.
  void LeaveLiveMerge();
  // Where blocks go: as the header found it, or as gathered since.
  std::shared_ptr<Contribution> contribution() const;

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
  // Checks blocks and keeps them in the log.
  absl::Status LogChunk(const rpc::ReceivedChunk& chunk, IndexRange blocks);
  // If so, those that wait for missing blocks end.
  void EndIfNobodySends(bool nobody_sends);

  const ServiceContext& context_;
  Shard* shard_ = nullptr;
  std::shared_ptr<Contribution> contribution_;  // Set by the header.

  mutable Mutex live_merge_mutex_;
  Shard::LiveMerge live_merge_ ABSL_GUARDED_BY(live_merge_mutex_);
  // It waits at its header: nothing is asked for yet.
  bool at_header_ ABSL_GUARDED_BY(live_merge_mutex_) = false;
  // Room for what is read next, or the turn that it waits for.
  std::optional<ReceiveBudget::Hold> read_room_ ABSL_GUARDED_BY(live_merge_mutex_);
  std::unique_ptr<ReceiveBudget::Ticket> ticket_ ABSL_GUARDED_BY(live_merge_mutex_);
  // First block of the cell of which this stream brought a part last.
  std::optional<int64_t> part_cell_ ABSL_GUARDED_BY(live_merge_mutex_);
  // Chunks that were not taken in yet, and whether no more are read, for that
  // or for want of room.
  int offered_count_ ABSL_GUARDED_BY(live_merge_mutex_) = 0;
  bool is_paused_ ABSL_GUARDED_BY(live_merge_mutex_) = false;
  // What the round was told: that this stream brings blocks, and is not read.
  bool joined_ ABSL_GUARDED_BY(live_merge_mutex_) = false;
  bool crowded_ ABSL_GUARDED_BY(live_merge_mutex_) = false;
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
