#include "server/service/upload_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "atoll/v1/parameter_service.pb.h"
#include "base/codec/crc32c.h"
#include "base/failpoint/test_point.h"
#include "base/layout/ids.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "server/service/block_check.h"

namespace atl::server {
namespace {

using Code = absl::StatusCode;

absl::Status Misfit(absl::string_view what) {
  return Refuse(Code::kInvalidArgument, "CHUNK_DOES_NOT_FIT", what);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Shard>> UploadStream::FindShard(
    const std::string& run_id) const {
  RETURN_IF_ERROR(
      WithReasonIfNone(ValidateId("run_id", run_id), "INVALID_FIELDS"));
  return context_.find_shard(run_id);
}

absl::Status UploadStream::Admit(const rpc::Caller& caller,
                                 const std::string& run_id,
                                 const Shard& shard) {
  // First: a plan may come in between.
  LimitTo(context_.access.MakeCheck(caller, run_id, shard.run_uid()));
  return context_.access.Check(caller, run_id, shard.run_uid());
}

void UploadStream::OnMessage(const grpc::ByteBuffer& message) {
  absl::Status status;
  if (contribution_ == nullptr) {
    status = TakeHeader(message);
  } else {
    // Every request type has the chunk in the same field.
    auto decoded = rpc::DecodeBulk<v1::PushOuterGradientRequest>(message);
    status = WithReasonIfNone(decoded.status(), "UNREADABLE_MESSAGE");
    if (status.ok()) {
      status = decoded->is_chunk
                   ? TakeChunk(decoded->chunk)
                   : Refuse(Code::kInvalidArgument, "WRONG_ORDER",
                            "after the header every message must be a chunk");
    }
  }
  if (!status.ok()) FinishWith(status);
}

absl::Status UploadStream::TakeHeader(const grpc::ByteBuffer& message) {
  ASSIGN_OR_RETURN(Opened opened, Open(message));
  if (opened.contribution == nullptr) {
    OnSettled(absl::OkStatus());
    return absl::OkStatus();
  }
  shard_ = std::move(opened.shard);
  contribution_ = std::move(opened.contribution);
  // Once it is listed, other threads call this stream, so all is set before,
  // and the state is read after: no settlement is missed.
  if (!contribution_->keeps_bytes()) return BeginLive();
  shard_->waiters().Add(contribution_->key(), gate());
  RETURN_IF_ERROR(CheckMember());
  switch (contribution_->state()) {
    case Contribution::State::kStored:
      OnSettled(absl::OkStatus());
      return absl::OkStatus();
    case Contribution::State::kRefused:
      return Refuse(
          Code::kInvalidArgument, "CONTRIBUTION_REFUSED",
          absl::StrCat(contribution_->key().ToString(), " is refused: ",
                       contribution_->refused_reason(),
                       "; give it up and pull the newest version"));
    case Contribution::State::kPartial:
      break;
  }
  // It was given up before this stream was listed, so no other code settles it.
  if (contribution_->is_released()) {
    return Refuse(Code::kUnavailable, "GIVEN_UP",
                  absl::StrCat(contribution_->key().ToString(),
                               " was given up on this server: push again"));
  }
  const std::vector<IndexRange> missing = contribution_->Missing();
  // All blocks are here, but a restart or a full disk prevented the finish.
  if (contribution_->TakeFinish()) {
    progress().waits_for_us = true;
    progress().is_complete = true;
    shard_->FinishLater(contribution_);
  } else {
    AskFor(missing);
  }
  return absl::OkStatus();
}

absl::Status UploadStream::BeginLive() {
  live_ = std::make_unique<LiveUpload>(*shard_, *this, contribution_,
                                       context_.held, gate(), progress());
  // Its sender is not to blame for the wait.
  progress().waits_for_us = true;
  if (!shard_->waiters().AddBounded(contribution_->key(), gate())) {
    return RefuseForNow(
        Code::kResourceExhausted, "TOO_MANY_STREAMS",
        absl::StrCat(PushWaiters::kWaitingMax, " streams of slot ",
                     contribution_->key().slot, " and fragment ",
                     contribution_->key().fragment,
                     " are waiting; call again later"),
        absl::Seconds(1));
  }
  RETURN_IF_ERROR(CheckMember());
  TestPoint("an upload is listed");
  // It may wait as long as other islands take.
  LeavePlace();
  TestPoint("an upload waits for others");
  live_->Begin();
  return absl::OkStatus();
}

absl::Status UploadStream::CheckMember() const {
  RETURN_IF_ERROR(shard_->CheckOpen());
  const ContributionKey& key = contribution_->key();
  return key.is_import() ? absl::OkStatus() : shard_->CheckMember(key.slot);
}

absl::Status UploadStream::CheckChunk(const rpc::ReceivedChunk& chunk) const {
  const rpc::ChunkHeader& header = chunk.header;
  const ShardRange& range = contribution_->range();
  if (header.codec != static_cast<int32_t>(contribution_->info().codec())) {
    return Misfit(absl::StrCat("chunk.codec ", header.codec,
                               " is not that of the contribution's header"));
  }
  // In an order that avoids overflow.
  if (header.block_count < 1 || header.first_block < range.blocks().begin ||
      header.first_block >= range.blocks().end ||
      header.block_count > range.blocks().end - header.first_block) {
    return Misfit(absl::StrCat("chunk of ", header.block_count,
                               " blocks from ", header.first_block,
                               " is not within this shard's [",
                               range.blocks().begin, ", ", range.blocks().end,
                               "); cut the fragment by the layout"));
  }
  const int64_t bytes_expected = contribution_->encoded().ByteCount(
      {header.first_block, header.first_block + header.block_count});
  if (bytes_expected > codec::kChunkPayloadBytesMax ||
      static_cast<int64_t>(chunk.payload_bytes) != bytes_expected) {
    return Misfit(absl::StrCat(
        "chunk of ", header.block_count, " blocks from ", header.first_block,
        " has ", chunk.payload_bytes, " bytes of payload; they have ",
        bytes_expected, ", and a chunk at most ",
        codec::kChunkPayloadBytesMax));
  }
  return absl::OkStatus();
}

absl::Status UploadStream::TakeChunk(rpc::ReceivedChunk& chunk) {
  const rpc::ChunkHeader& header = chunk.header;
  const ContributionKey key = {header.run_epoch, header.fragment, header.slot,
                               header.seq};
  if (!header.has_key || !(key == contribution_->key())) {
    return Refuse(Code::kInvalidArgument, "WRONG_KEY",
                  absl::StrCat("chunk.key ", key.ToString(),
                               " is not that of the stream's header; open a "
                               "stream for each contribution"));
  }
  shard_->AddReceivedBytes(static_cast<int64_t>(chunk.payload_bytes));
  context_.metrics.AddPushed(contribution_->info().codec(),
                             static_cast<int64_t>(chunk.payload_bytes));
  progress().payload_bytes += static_cast<int64_t>(chunk.payload_bytes);
  absl::Status status = CheckChunk(chunk);
  if (status.ok()) {
    const IndexRange blocks = {header.first_block,
                               header.first_block + header.block_count};
    absl::StatusOr<std::vector<BlockFact>> facts = CheckBlocks(chunk, blocks);
    status = !facts.ok()        ? facts.status()
             : live_ != nullptr ? live_->Offer(chunk, blocks, *std::move(facts))
                                : LogChunk(chunk, blocks, *facts);
  } else {
    RETURN_IF_ERROR(
        WithReasonIfNone(rpc::CheckCrc32c(chunk), "CHUNK_DAMAGED"));
  }
  // The checksum matches, so the sender meant this chunk: an error refuses the
  // whole contribution, or only this stream if that is already complete.
  if (absl::IsInvalidArgument(status) && target()->TakeRefusal()) {
    shard_->RefuseWhole(*contribution_, status);
  }
  return status;
}

absl::StatusOr<std::vector<BlockFact>> UploadStream::CheckBlocks(
    const rpc::ReceivedChunk& chunk, IndexRange blocks) const {
  const EncodedRange& encoded = contribution_->encoded();
  const ShardRange& range = contribution_->range();
  rpc::PayloadReader payload(chunk);
  std::vector<BlockFact> facts(blocks.size());
  int64_t bad_block = -1;
  auto fault = codec::BlockFault::kNone;
  // Each block is checked in place, or in the first-level cache if it lies in
  // several slices. The chunk's checksum is combined from theirs.
  alignas(64) char passing[codec::kBlockElements * sizeof(float)];
  uint32_t crc = rpc::ChunkCrc32c(chunk.header, {});
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const absl::string_view block = payload.Next(
        static_cast<size_t>(encoded.ByteCount({b, b + 1})), passing);
    BlockFact& fact = facts[b - blocks.begin];
    fact.crc32c = codec::Crc32c(block);
    crc = codec::CombineCrc32c(crc, fact.crc32c, block.size());
    const CheckedBlock checked =
        CheckBlock(encoded.codec(), block, range.ElementCount({b, b + 1}));
    fact.norm_squared = checked.sum_of_squares;
    if (checked.fault != codec::BlockFault::kNone && bad_block < 0) {
      bad_block = b;
      fault = checked.fault;
    }
  }
  if (crc != chunk.header.crc32c) {
    return Refuse(Code::kDataLoss, "CHUNK_DAMAGED",
                  "a chunk's checksum does not match: send it again");
  }
  if (bad_block >= 0) {
    return Refuse(
        Code::kInvalidArgument,
        fault == codec::BlockFault::kNotFinite ? "NOT_FINITE" : "MALFORMED",
        absl::StrCat(
            "block ", bad_block, ", of tensor ",
            range.layout().BlockTensor(range.fragment(), bad_block).name, ", ",
            codec::FaultText(fault)));
  }
  return facts;
}

absl::Status UploadStream::LogChunk(const rpc::ReceivedChunk& chunk,
                                    IndexRange blocks,
                                    absl::Span<const BlockFact> facts) {
  const EncodedRange& encoded = contribution_->encoded();
  bool complete = false;
  absl::Status status;
  for (const IndexRange claimed : contribution_->Claim(blocks)) {
    if (!status.ok()) {
      contribution_->Settle(claimed, {});
      continue;
    }
    // Written from the received slices, without a copy.
    rpc::PayloadReader payload(chunk);
    payload.Skip(encoded.ByteCount({blocks.begin, claimed.begin}));
    std::vector<absl::string_view> pieces;
    payload.Take(encoded.ByteCount(claimed), &pieces);
    const absl::StatusOr<bool> last = shard_->WriteBlocks(
        *contribution_, claimed, pieces,
        facts.subspan(claimed.begin - blocks.begin, claimed.size()));
    status = last.status();
    complete |= last.ok() && *last;
  }
  RETURN_IF_ERROR(status);
  if (complete) {
    progress().waits_for_us = true;
    progress().is_complete = true;
    shard_->FinishLater(contribution_);
  }
  return absl::OkStatus();
}

void UploadStream::OnEnd() {
  if (contribution_ == nullptr) {
    FinishWith(Refuse(Code::kInvalidArgument, "WRONG_ORDER",
                      "the stream ended without a header"));
    return;
  }
  if (live_ != nullptr) live_->Leave();
  EndIfNobodySends(
      shard_->waiters().EndSending(contribution_->key(), gate().get()));
}

void UploadStream::EndIfNobodySends(bool nobody_sends) {
  if (!nobody_sends || target()->Missing().empty()) return;
  if (live_ != nullptr) live_->Abandon();
  shard_->waiters().Settle(
      contribution_->key(),
      Refuse(Code::kUnavailable, "BLOCKS_MISSING",
             "blocks are missing and no stream sends them: push again"));
}

void UploadStream::OnGone() {
  if (contribution_ == nullptr) return;
  if (live_ != nullptr) live_->Leave();
  EndIfNobodySends(
      shard_->waiters().Remove(contribution_->key(), gate().get()));
  TestPoint("an upload is gone");
}

}  // namespace atl::server
