#include "server/client/download_stream.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/codec/block_grid.h"
#include "base/codec/codec.h"
#include "base/codec/crc32c.h"
#include "base/codec/f32_values.h"
#include "base/codec/stream_copy.h"
#include "base/layout/exchange.h"
#include "base/rpc/call.h"
#include "base/rpc/chunk_codec.h"
#include "base/rpc/status.h"
#include "base/status/status_macros.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/client/delay.h"

namespace atl::server {
namespace {

using Message = v1::PullParametersResponse;

// Most blocks of a group: their replica stays in cache.
constexpr int64_t kGroupBlocksMax = 64;

class DownloadStream
    : public BulkStream,
      public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  DownloadStream(const std::shared_ptr<grpc::Channel>& channel,
                 const std::string& session, v1::PullParametersRequest request,
                 Download& download, StreamEvents& events)
      : stub_(channel), download_(download), events_(events) {
    request.mutable_range()->set_begin(download.next_block);
    request.mutable_range()->set_end(download.blocks.end);
    if (download.is_replica) request.set_content(v1::PULL_CONTENT_REPLICA);
    if (download.from_version >= 0) {
      request.set_from_version(download.from_version);
    }
    // Under a cap the cap decides the chunk size.
    if (!download.pacer->is_capped()) {
      request.set_first_chunk_bytes(download.sizer->bytes());
    }
    request_ = rpc::EncodeMessage(request);
    if (!session.empty()) context_.AddMetadata(rpc::kSessionMetadata, session);
    stub_.PrepareBidiStreamingCall(
        &context_, "/atoll.v1.ParameterService/PullParameters", {}, this);
  }

  void Start() override {
    moved_ = absl::Now();
    TakeForWindow();
    StartRead(&message_);
    StartWriteLast(&request_, grpc::WriteOptions());
    StartCall();
  }

  void Cancel() override {
    context_.TryCancel();
    delay_.Hurry();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    failure_ = Take();
    if (!failure_.ok()) {
      context_.TryCancel();
      return;
    }
    const absl::Duration wait = TakeForWindow();
    if (wait <= absl::ZeroDuration()) {
      StartRead(&message_);
      return;
    }
    AddHold();
    delay_.Start(wait, [this] {
      StartRead(&message_);
      RemoveHold();
    });
  }

  void OnDone(const grpc::Status& grpc_status) override {
    download_.pacer->GiveBack(paid_bytes_ - received_bytes_);
    const absl::Status status =
        Finish(rpc::NamePeer(rpc::FromGrpc(grpc_status), download_.peer));
    if (!status.ok()) download_.sizer->Failed();
    events_.Done(status);
  }

 private:
  // Takes from the pacer what the server may send after the next read starts:
  // what is left, at most the window. Returns how long that read must wait.
  absl::Duration TakeForWindow() {
    const int64_t left_bytes = LeftBytes();
    const int64_t target_bytes =
        received_bytes_ + std::min(left_bytes, download_.window_bytes);
    const int64_t bytes = std::max<int64_t>(0, target_bytes - paid_bytes_);
    paid_bytes_ += bytes;
    return download_.pacer->Take(bytes);
  }

  absl::Duration SinceMoved() {
    const absl::Time before = std::exchange(moved_, absl::Now());
    return moved_ - before;
  }

  // Most payload bytes still to come: as f32 until a header says otherwise.
  int64_t LeftBytes() const {
    const IndexRange left = {download_.next_block, download_.blocks.end};
    if (codec_ != nullptr) {
      const size_t block_bytes = codec_->EncodedBytes(codec::kBlockElements);
      return left.size() * static_cast<int64_t>(block_bytes) * chain_count_;
    }
    return download_.layout->BlockElements(download_.fragment, left).size() *
           static_cast<int64_t>(sizeof(float));
  }

  absl::Status Take() {
    ASSIGN_OR_RETURN(auto message, rpc::DecodeBulk<Message>(message_));
    message_.Clear();
    if (message.is_chunk) return TakeChunk(message.chunk);
    if (message.message.has_header()) {
      return TakeHeader(message.message.header());
    }
    return absl::OkStatus();  // A newer server's message: ignored.
  }

  absl::Status TakeHeader(const v1::PullHeader& header) {
    if (has_header_) return absl::InternalError("a second header in a pull");
    if (header.version() != download_.version) {
      return absl::InternalError(absl::StrCat(
          "asked for version ", download_.version, ", got ", header.version()));
    }
    RETURN_IF_ERROR(CheckContent(header));
    if (header.range().begin() != download_.next_block ||
        header.range().end() != download_.blocks.end) {
      return absl::InternalError(
          absl::StrCat("asked for blocks [", download_.next_block, ", ",
                       download_.blocks.end, "), got [", header.range().begin(),
                       ", ", header.range().end(), ")"));
    }
    has_header_ = true;
    round_trip_ = SinceMoved();
    part_digest_ = Digest128::FromProto(header.digest());
    events_.Moved(0);
    return absl::OkStatus();
  }

  // Checks that the content is one that was asked for and can be decoded.
  absl::Status CheckContent(const v1::PullHeader& header) {
    if (download_.is_replica && header.content() == v1::PULL_CONTENT_CHAIN) {
      codec_ = codec::FindCodec(header.codec());
      chain_count_ = download_.version - download_.from_version;
      if (codec_ != nullptr && download_.from_version >= 0 &&
          header.from_version() == download_.from_version &&
          chain_count_ >= 1 && chain_count_ <= kDeltasMax) {
        return absl::OkStatus();
      }
    } else if (header.codec() == v1::CODEC_F32) {
      const bool is_replica = header.content() == v1::PULL_CONTENT_REPLICA;
      if (is_replica == download_.is_replica) return absl::OkStatus();
    }
    return absl::InternalError(absl::StrCat(
        "a pull of ", v1::PullContent_Name(header.content()), " from version ",
        header.from_version(), " in codec ", static_cast<int>(header.codec()),
        ", which was not asked for or is unknown to this program"));
  }

  absl::Status TakeChunk(const rpc::ReceivedChunk& chunk) {
    const rpc::ChunkHeader& header = chunk.header;
    if (!has_header_) return absl::InternalError("a chunk before the header");
    const bool fits = header.block_count >= 1 &&
                      header.first_block == download_.next_block &&
                      header.block_count <=
                          download_.blocks.end - download_.next_block;
    const IndexRange blocks = {
        header.first_block,
        header.first_block + (fits ? header.block_count : 0)};
    const int32_t codec =
        codec_ == nullptr ? v1::CODEC_F32 : static_cast<int32_t>(codec_->id());
    if (!fits || header.codec != codec ||
        (link_ > 0 && !(blocks == group_))) {
      return absl::InternalError(
          absl::StrCat("a chunk of ", header.block_count, " blocks from ",
                       header.first_block, " in codec ", header.codec,
                       " where block ", download_.next_block, " was due"));
    }
    RETURN_IF_ERROR(codec_ == nullptr ? TakeElements(chunk, blocks)
                                      : TakeDelta(chunk, blocks));
    received_bytes_ += static_cast<int64_t>(chunk.payload_bytes);
    download_.sizer->Moved(SinceMoved(), round_trip_);
    events_.Moved(static_cast<int64_t>(chunk.payload_bytes));
    if (link_ == 0) events_.Advanced();
    return absl::OkStatus();
  }

  absl::Status TakeElements(const rpc::ReceivedChunk& chunk,
                            IndexRange blocks) {
    const RunLayout& layout = *download_.layout;
    const IndexRange span = layout.BlockElements(download_.fragment, blocks);
    if (chunk.payload_bytes !=
        static_cast<size_t>(span.size()) * sizeof(float)) {
      return absl::InternalError(
          absl::StrCat("a chunk of ", chunk.payload_bytes, " bytes for ",
                       span.size(), " elements"));
    }
    // Each block is checksummed, digested and copied while in cache. After an
    // error `out` holds wrong data and no old replica, and is written again.
    download_.from_version = -1;
    rpc::PayloadReader payload(chunk);
    uint32_t crc = rpc::ChunkCrc32c(chunk.header, {});
    Digest128 digest;
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      const absl::Span<float> out = Out({block, block + 1});
      const absl::string_view bytes =
          payload.Next(out.size() * sizeof(float), encoded_);
      crc = codec::ExtendCrc32c(crc, bytes);
      digest += BlockDigest(block, bytes);
      codec::StreamCopy(bytes.size(), bytes.data(),
                        reinterpret_cast<char*>(out.data()));
    }
    if (crc != chunk.header.crc32c) return WrongChecksum();
    download_.digest += digest;
    download_.next_block = blocks.end;
    return absl::OkStatus();
  }

  // One delta of a group of blocks. A block in the caller's memory changes only
  // once all its deltas are checked, so it can be asked for again before.
  absl::Status TakeDelta(const rpc::ReceivedChunk& chunk, IndexRange blocks) {
    if (blocks.size() > kGroupBlocksMax) {
      return absl::InternalError(
          absl::StrCat("a chunk of ", blocks.size(), " blocks"));
    }
    size_t expected_bytes = 0;
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      expected_bytes += codec_->EncodedBytes(Out({block, block + 1}).size());
    }
    if (expected_bytes != chunk.payload_bytes) return WrongSize(chunk, blocks);
    RETURN_IF_ERROR(rpc::CheckCrc32c(chunk));
    return chain_count_ == 1 ? TakeOnlyDelta(chunk, blocks)
                             : TakeDeltaOfChain(chunk, blocks);
  }

  // The usual case, one version behind: adds each block in place and digests it
  // while it is in the first-level cache.
  absl::Status TakeOnlyDelta(const rpc::ReceivedChunk& chunk,
                             IndexRange blocks) {
    rpc::PayloadReader payload(chunk);
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      const absl::Span<float> out = Out({block, block + 1});
      RETURN_IF_ERROR(AddDelta(payload, block, /*last=*/true, out));
      download_.digest += BlockDigest(block, out);
      download_.next_block = block + 1;
    }
    return absl::OkStatus();
  }

  absl::Status TakeDeltaOfChain(const rpc::ReceivedChunk& chunk,
                                IndexRange blocks) {
    const absl::Span<float> out = Out(blocks);
    if (link_ == 0) {
      group_ = blocks;
      replica_.assign(out.begin(), out.end());
    }
    const bool last = link_ + 1 == chain_count_;
    rpc::PayloadReader payload(chunk);
    float* replica = replica_.data();
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      const size_t n = Out({block, block + 1}).size();
      RETURN_IF_ERROR(
          AddDelta(payload, block, last, absl::MakeSpan(replica, n)));
      replica += n;
    }
    link_ = last ? 0 : link_ + 1;
    if (!last) return absl::OkStatus();
    std::copy(replica_.begin(), replica_.end(), out.begin());
    download_.digest +=
        RangeDigest(*download_.layout, download_.fragment, blocks, out);
    download_.next_block = blocks.end;
    return absl::OkStatus();
  }

  // replica += Dec(next delta of `payload`), for one block. After the `last`
  // delta of a chain it must be finite. After an error `replica` may be the
  // caller's memory, so the rest is asked for in full.
  absl::Status AddDelta(rpc::PayloadReader& payload, int64_t block, bool last,
                        absl::Span<float> replica) {
    const size_t size = codec_->EncodedBytes(replica.size());
    const codec::BlockFault fault =
        codec_->DecodeAccumulate(payload.Next(size, encoded_), 1.0f, replica);
    if (fault != codec::BlockFault::kNone) {
      download_.from_version = -1;
      return absl::InternalError(absl::StrCat("a delta of block ", block, " ",
                                              codec::FaultText(fault)));
    }
    if (last && !codec::AllFinite(replica)) {
      download_.from_version = -1;
      return absl::InternalError(
          "a delta leads to a replica with a value that is not finite");
    }
    return absl::OkStatus();
  }

  absl::Span<float> Out(IndexRange blocks) const {
    const IndexRange at =
        download_.layout->BlockElements(download_.fragment, blocks);
    return download_.out.subspan(
        static_cast<size_t>(at.begin - download_.out_begin),
        static_cast<size_t>(at.size()));
  }

  static absl::Status WrongChecksum() {
    return absl::DataLossError(
        "a chunk's checksum does not match: send it again");
  }

  static absl::Status WrongSize(const rpc::ReceivedChunk& chunk,
                                IndexRange blocks) {
    return absl::InternalError(
        absl::StrCat("a chunk of ", chunk.payload_bytes, " bytes for blocks [",
                     blocks.begin, ", ", blocks.end, ")"));
  }

  absl::Status Finish(const absl::Status& status) {
    if (!failure_.ok()) return failure_;
    RETURN_IF_ERROR(status);
    if (!has_header_ || download_.next_block != download_.blocks.end) {
      return absl::UnavailableError(
          "the server ended the stream before it had sent all blocks");
    }
    if (!download_.total->Add(download_.digest, part_digest_)) {
      download_.StartOver();
      return absl::DataLossError(
          "the blocks do not match the server's digest");
    }
    return absl::OkStatus();
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  Download& download_;
  StreamEvents& events_;
  // Used by one reaction at a time: reads follow each other, OnDone comes last.
  grpc::ByteBuffer message_;
  bool has_header_ = false;
  absl::Time moved_;           // When the last message arrived.
  absl::Duration round_trip_;  // From the request to the header.
  Digest128 part_digest_;
  // The chain's codec; null without a chain.
  const codec::Codec* codec_ = nullptr;
  int64_t chain_count_ = 0;  // Deltas of each group.
  int64_t link_ = 0;         // Deltas of `group_` that have arrived.
  IndexRange group_;
  std::vector<float> replica_;  // The values of `group_`, after `link_` deltas.
  // Scratch for a block that lies in several slices.
  alignas(64) char encoded_[codec::kBlockElements * sizeof(float)];
  absl::Status failure_;  // Found here; replaces the call's status.
  int64_t received_bytes_ = 0;  // Payload, on this stream.
  int64_t paid_bytes_ = 0;      // Taken from the pacer.
  Delay delay_;
};

}  // namespace

bool DownloadTotal::Add(const Digest128& digest, const Digest128& expected) {
  MutexLock lock(&mutex_);
  digest_ += digest;
  expected_ = expected;
  if (--left_count_ > 0 || !is_shard_ || digest_ == expected) return true;
  left_count_ = 1;
  digest_ = Digest128();
  return false;
}

Digest128 DownloadTotal::expected() const {
  MutexLock lock(&mutex_);
  return expected_;
}

Digest128 DownloadTotal::digest() const {
  MutexLock lock(&mutex_);
  return digest_;
}

std::unique_ptr<BulkStream> MakeDownloadStream(
    const std::shared_ptr<grpc::Channel>& channel, const std::string& session,
    v1::PullParametersRequest request, Download& download,
    StreamEvents& events) {
  return std::make_unique<DownloadStream>(channel, session, std::move(request),
                                          download, events);
}

}  // namespace atl::server
