#include "server/service/import_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/codec/block_grid.h"
#include "base/codec/xxh3.h"
#include "base/layout/ids.h"
#include "base/status/status_macros.h"
#include "server/kernels/merge_kernels.h"
#include "server/service/round_merger.h"

namespace atl::server {

ImportStream* ImportStream::Start(grpc::CallbackServerContext* call,
                                  const ServiceContext& context) {
  ImportStream* stream = new ImportStream(call, context);
  stream->Begin();
  return stream;
}

ImportStream::ImportStream(grpc::CallbackServerContext* call,
                           const ServiceContext& context)
    : BidiStream(context.push_watchdog), call_(call), context_(context) {}

std::unique_ptr<google::protobuf::MessageLite> ImportStream::StoredAnswer()
    const {
  auto answer = std::make_unique<v1::ImportParametersResponse>();
  answer->set_stored(true);
  return answer;
}

void ImportStream::OnMessage(const grpc::ByteBuffer& message) {
  auto decoded = rpc::DecodeBulk<v1::ImportParametersRequest>(message);
  absl::Status status = decoded.status();
  if (status.ok()) {
    if (shard_ == nullptr) {
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

absl::Status ImportStream::TakeHeader(const v1::ImportHeader& header) {
  RETURN_IF_ERROR(ValidateId("run_id", header.run_id()));
  Shard* shard = context_.shards.FindShard(header.run_id());
  if (shard == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("this server holds no shard of run ", header.run_id()));
  }
  if (!shard->store().run().spec().init().import()) {
    return absl::FailedPreconditionError(
        "version 0 of this run comes from its generator, not from an import");
  }
  RETURN_IF_ERROR(
      shard->CheckPlace(0, 0, header.layout_fingerprint(), header.shard()));
  fragment_ = header.fragment();
  if (fragment_ < 0 || fragment_ >= shard->store().layout().fragment_count() ||
      shard->store().range(fragment_).empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "fragment ", fragment_, " has no block on shard ", header.shard()));
  }
  const ShardRange& range = shard->store().range(fragment_);
  expected_ = Digest128::FromProto(header.digest());
  if (!shard->BeginImport(fragment_)) {
    return absl::UnavailableError(
        "another stream imports this fragment; call again");
  }
  shard_ = shard;
  holds_claim_ = true;
  if (shard->version(fragment_) >= 0) {
    // It was imported before: the same again is fine.
    const std::optional<HeldVersion> held =
        shard->store().FindVersion(fragment_, 0);
    if (!held) {
      return absl::FailedPreconditionError("the run is past version 0");
    }
    file_ = held->file;
    absent_count_ = 0;
    RETURN_IF_ERROR(Complete());
    OnSettled(absl::OkStatus());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(file_, shard_->store().NewVersion(fragment_, 0));
  present_.assign(range.block_count(), false);
  absent_count_ = range.block_count();
  v1::ImportParametersResponse answer;
  v1::BlockRange* missing = answer.add_missing();
  missing->set_begin(range.blocks().begin);
  missing->set_end(range.blocks().end);
  Send(answer);
  return absl::OkStatus();
}

absl::Status ImportStream::CheckChunk(const rpc::ReceivedChunk& chunk) const {
  const rpc::ChunkHeader& header = chunk.header;
  const ShardRange& range = shard_->store().range(fragment_);
  if (!header.has_key || header.run_epoch != 0 || header.slot != 0 ||
      header.seq != 0 || header.fragment != fragment_) {
    return absl::InvalidArgumentError(
        "chunk.key of an import must be (0, fragment, 0, 0)");
  }
  if (header.codec != v1::CODEC_F32) {
    return absl::InvalidArgumentError("chunk.codec must be CODEC_F32");
  }
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
        absl::StrCat("chunk has ", chunk.payload_bytes,
                     " bytes of payload; its blocks have ", bytes_expected));
  }
  return absl::OkStatus();
}

absl::Status ImportStream::TakeChunk(const rpc::ReceivedChunk& chunk) {
  RETURN_IF_ERROR(rpc::CheckCrc32c(chunk));
  RETURN_IF_ERROR(CheckChunk(chunk));
  progress().payload_bytes += static_cast<int64_t>(chunk.payload_bytes);
  shard_->AddReceivedBytes(static_cast<int64_t>(chunk.payload_bytes));
  const ShardRange& range = shard_->store().range(fragment_);
  const IndexRange blocks = {
      chunk.header.first_block,
      chunk.header.first_block + chunk.header.block_count};
  std::vector<float> elements(range.ElementCount(blocks));
  chunk.CopyPayload(reinterpret_cast<char*>(elements.data()));
  if (!kernels::CheckAndNorm(static_cast<int64_t>(elements.size()),
                             elements.data())
           .finite) {
    return absl::InvalidArgumentError(
        "the chunk has a value that is NaN or infinite");
  }
  const int64_t first = range.ElementOffset(blocks.begin);
  std::vector<float> state;
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const int64_t i = b - range.blocks().begin;
    if (present_[i]) continue;
    const float* block = elements.data() + (range.ElementOffset(b) - first);
    const int64_t count = range.ElementCount({b, b + 1});
    RETURN_IF_ERROR(file_->Write(0, {b, b + 1}, block));
    RETURN_IF_ERROR(RoundMerger::WriteInitialState(
        *file_, range, shard_->optimizer(), {b, b + 1}, state));
    digest_ += BlockDigest(b, absl::MakeConstSpan(block, count));
    present_[i] = true;
    --absent_count_;
  }
  if (absent_count_ > 0) return absl::OkStatus();
  RETURN_IF_ERROR(Complete());
  shard_->store().PublishVersion(fragment_, 0, {file_, 0, digest_});
  RETURN_IF_ERROR(shard_->FinishImport(fragment_));
  OnSettled(absl::OkStatus());
  return absl::OkStatus();
}

absl::Status ImportStream::Complete() {
  const ShardRange& range = shard_->store().range(fragment_);
  codec::Xxh3 hash;
  std::vector<float> block(codec::kBlockElements);
  for (int64_t b = range.blocks().begin; b < range.blocks().end; ++b) {
    RETURN_IF_ERROR(file_->Read(0, {b, b + 1}, block.data()));
    hash.Update(absl::string_view(
        reinterpret_cast<const char*>(block.data()),
        static_cast<size_t>(range.ElementCount({b, b + 1})) * sizeof(float)));
  }
  const codec::Hash128 found = hash.Current();
  if (expected_ != Digest128{found.high, found.low}) {
    return absl::InvalidArgumentError(
        "the imported blocks do not have the digest of the header");
  }
  return absl::OkStatus();
}

void ImportStream::OnEnd() {
  FinishWith(shard_ == nullptr
                 ? absl::InvalidArgumentError("the stream has no header")
                 : absl::UnavailableError("blocks are missing: push again"));
}

void ImportStream::OnGone() {
  if (holds_claim_) shard_->EndImport(fragment_);
}

}  // namespace atl::server
