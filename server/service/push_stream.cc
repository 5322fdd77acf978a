#include "server/service/push_stream.h"

#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/codec/crc32c.h"
#include "base/codec/sha256.h"
#include "base/layout/ids.h"
#include "base/rpc/authorization.h"
#include "base/rpc/call.h"
#include "base/status/status_macros.h"
#include "server/kernels/merge_kernels.h"

namespace atl::server {
namespace {

// SHA-256 of the secret in the call's metadata; empty if there is none or it
// is not hex.
std::string SessionSha256(const grpc::CallbackServerContext& call) {
  const auto& metadata = call.client_metadata();
  const auto it = metadata.find(rpc::kSessionMetadata);
  if (it == metadata.end() || it->second.size() != 64) return "";
  const absl::string_view hex(it->second.data(), it->second.size());
  for (const char c : hex) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return "";
  }
  const codec::Sha256Digest digest =
      codec::Sha256Of(absl::HexStringToBytes(hex));
  return std::string(digest.begin(), digest.end());
}

absl::string_view BytesOf(const float* elements, int64_t count) {
  return absl::string_view(reinterpret_cast<const char*>(elements),
                           static_cast<size_t>(count) * sizeof(float));
}

void AddRanges(const std::vector<IndexRange>& ranges,
               google::protobuf::RepeatedPtrField<v1::BlockRange>* out) {
  // A message must stay small: what does not fit is named the next time.
  constexpr size_t kRangesMax = 65536;
  for (size_t i = 0; i < ranges.size() && i < kRangesMax; ++i) {
    v1::BlockRange* range = out->Add();
    range->set_begin(ranges[i].begin);
    range->set_end(ranges[i].end);
  }
}

}  // namespace

PushStream* PushStream::Start(grpc::CallbackServerContext* call,
                              const ServiceContext& context) {
  PushStream* stream = new PushStream(call, context);
  stream->Begin();
  return stream;
}

PushStream::PushStream(grpc::CallbackServerContext* call,
                       const ServiceContext& context)
    : BidiStream(context.push_watchdog), call_(call), context_(context) {}

std::unique_ptr<google::protobuf::MessageLite> PushStream::StoredAnswer()
    const {
  auto answer = std::make_unique<v1::PushOuterGradientResponse>();
  answer->set_stored(true);
  return answer;
}

void PushStream::OnMessage(const grpc::ByteBuffer& message) {
  auto decoded = rpc::DecodeBulk<v1::PushOuterGradientRequest>(message);
  absl::Status status = decoded.status();
  if (status.ok()) {
    if (contribution_ == nullptr) {
      status = decoded->message.has_header()
                   ? TakeHeader(decoded->message.header())
                   : absl::InvalidArgumentError(
                         "the first message must be the header");
    } else {
      status = decoded->is_chunk
                   ? TakeChunk(decoded->chunk)
                   : absl::InvalidArgumentError(
                         "after the header every message must be a chunk");
    }
  }
  if (!status.ok()) FinishWith(status);
}

absl::Status PushStream::TakeHeader(const v1::PushHeader& header) {
  RETURN_IF_ERROR(ValidateId("run_id", header.run_id()));
  RETURN_IF_ERROR(ValidateId("island_id", header.island_id()));
  ASSIGN_OR_RETURN(const rpc::Caller caller, rpc::CallerOf(*call_));
  RETURN_IF_ERROR(
      rpc::CheckActsFor(caller, rpc::Role::kIsland, header.island_id()));
  shard_ = context_.shards.FindShard(header.run_id());
  if (shard_ == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("this server holds no shard of run ", header.run_id()));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<Contribution> contribution,
                   shard_->OpenPush(header, SessionSha256(*call_)));
  // Before the state is looked at, so that no settlement is missed.
  shard_->waiters().Add(contribution->key(), gate());
  sending_ = true;
  contribution_ = std::move(contribution);
  switch (contribution_->state()) {
    case Contribution::State::kStored:
      Send(*StoredAnswer());
      FinishWith(absl::OkStatus());
      return absl::OkStatus();
    case Contribution::State::kRefused:
      return absl::InvalidArgumentError(
          absl::StrCat(contribution_->key().ToString(),
                       " is refused: ", contribution_->refused_reason()));
    case Contribution::State::kPartial:
      break;
  }
  v1::PushOuterGradientResponse answer;
  AddRanges(contribution_->Missing(), answer.mutable_missing());
  // All blocks came, and a restart or a full disk was faster than the finish.
  if (contribution_->TakeFinish()) {
    progress().waits_for_us = true;
    shard_->FinishLater(contribution_);
  } else {
    Send(answer);
  }
  return absl::OkStatus();
}

absl::Status PushStream::CheckChunk(const rpc::ReceivedChunk& chunk) const {
  const rpc::ChunkHeader& header = chunk.header;
  const ShardRange& range = contribution_->range();
  if (header.codec != static_cast<int32_t>(contribution_->info().codec())) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk.codec ", header.codec,
                     " is not that of the contribution's header"));
  }
  // In this order, so that no sum overflows.
  if (header.block_count < 1 || header.first_block < range.blocks().begin ||
      header.first_block >= range.blocks().end ||
      header.block_count > range.blocks().end - header.first_block) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk of ", header.block_count, " blocks from ",
                     header.first_block, " is not within this shard's [",
                     range.blocks().begin, ", ", range.blocks().end, ")"));
  }
  const int64_t bytes_expected =
      range.ElementCount(
          {header.first_block, header.first_block + header.block_count}) *
      static_cast<int64_t>(sizeof(float));
  if (bytes_expected > codec::kChunkPayloadBytesMax ||
      static_cast<int64_t>(chunk.payload_bytes) != bytes_expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk of ", header.block_count, " blocks from ",
                     header.first_block, " has ", chunk.payload_bytes,
                     " bytes of payload; they have ", bytes_expected,
                     ", and a chunk at most ", codec::kChunkPayloadBytesMax));
  }
  return absl::OkStatus();
}

absl::Status PushStream::TakeChunk(const rpc::ReceivedChunk& chunk) {
  const rpc::ChunkHeader& header = chunk.header;
  const ContributionKey key = {header.run_epoch, header.fragment, header.slot,
                               header.seq};
  if (!header.has_key || !(key == contribution_->key())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "chunk.key ", key.ToString(), " is not that of the stream's header"));
  }
  shard_->AddReceivedBytes(static_cast<int64_t>(chunk.payload_bytes));
  progress().payload_bytes += static_cast<int64_t>(chunk.payload_bytes);
  absl::Status status = CheckChunk(chunk);
  if (status.ok()) {
    const IndexRange blocks = {header.first_block,
                               header.first_block + header.block_count};
    BufferPool::Buffer buffer = context_.buffers->Take();
    status = StoreChunk(chunk, blocks, buffer.get());
    context_.buffers->Give(std::move(buffer));
  } else {
    RETURN_IF_ERROR(rpc::CheckCrc32c(chunk));
  }
  // The checksum is right, so the chunk is what its sender meant: an error in
  // it is the whole contribution's. But once that is whole, what else comes
  // under its key is this stream's error.
  if (absl::IsInvalidArgument(status) && contribution_->TakeRefusal()) {
    shard_->Refuse(contribution_->key(), std::string(status.message()));
  }
  return status;
}

absl::Status PushStream::StoreChunk(const rpc::ReceivedChunk& chunk,
                                    IndexRange blocks, float* elements) {
  const ShardRange& range = contribution_->range();
  rpc::PayloadReader payload(chunk);
  const int64_t first = range.ElementOffset(blocks.begin);
  std::vector<BlockFact> facts(blocks.size());
  int64_t bad_block = -1;
  // Each block is copied, checked and summed while it is in cache; the chunk's
  // checksum is put together from theirs.
  uint32_t crc = rpc::ChunkCrc32c(chunk.header, {});
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    float* block = elements + (range.ElementOffset(b) - first);
    const int64_t count = range.ElementCount({b, b + 1});
    const absl::string_view bytes = BytesOf(block, count);
    payload.Read(bytes.size(), reinterpret_cast<char*>(block));
    const kernels::NormResult norm = kernels::CheckAndNorm(count, block);
    if (!norm.finite) bad_block = b;
    BlockFact& fact = facts[b - blocks.begin];
    fact = {codec::Crc32c(bytes), norm.sum_of_squares};
    crc = codec::CombineCrc32c(crc, fact.crc32c, bytes.size());
  }
  if (crc != chunk.header.crc32c) {
    return absl::DataLossError(
        "a chunk's checksum does not match: send it again");
  }
  if (bad_block >= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "block ", bad_block, " has a value that is NaN or infinite"));
  }
  bool complete = false;
  for (const IndexRange claimed : contribution_->Claim(blocks)) {
    ASSIGN_OR_RETURN(
        const bool last,
        shard_->store().WriteBlocks(
            *contribution_, claimed,
            elements + (range.ElementOffset(claimed.begin) - first),
            absl::MakeConstSpan(facts).subspan(claimed.begin - blocks.begin,
                                               claimed.size())));
    complete |= last;
  }
  if (complete) {
    progress().waits_for_us = true;
    shard_->FinishLater(contribution_);
  }
  return absl::OkStatus();
}

void PushStream::OnEnd() {
  if (contribution_ == nullptr) {
    FinishWith(absl::InvalidArgumentError("the stream has no header"));
    return;
  }
  if (sending_) {
    sending_ = false;
    EndIfNobodySends(shard_->waiters().EndSending(contribution_->key()));
  }
}

void PushStream::EndIfNobodySends(int sending_count) {
  if (sending_count > 0 || contribution_->Missing().empty()) return;
  shard_->waiters().Settle(
      contribution_->key(),
      absl::UnavailableError(
          "blocks are missing and nobody sends them: push again"));
}

void PushStream::OnGone() {
  if (contribution_ == nullptr) return;
  const int left =
      shard_->waiters().Remove(contribution_->key(), gate().get(), sending_);
  EndIfNobodySends(left);
}

}  // namespace atl::server
