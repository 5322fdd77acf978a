#include "server/client/download_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/codec/block_grid.h"
#include "base/codec/crc32c.h"
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
    request_ = rpc::EncodeMessage(request);
    if (!session.empty()) context_.AddMetadata(rpc::kSessionMetadata, session);
    stub_.PrepareBidiStreamingCall(
        &context_, "/atoll.v1.ParameterService/PullParameters", {}, this);
  }

  void Start() override {
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
    events_.Done(
        Finish(rpc::NamePeer(rpc::FromGrpc(grpc_status), download_.peer)));
  }

 private:
  // Pays for what the server may send once the next read has begun: of what is
  // still to come, as much as the window lets through. Returns how long that
  // read has to wait.
  absl::Duration TakeForWindow() {
    const int64_t left_bytes = LeftBytes();
    const int64_t target_bytes =
        received_bytes_ + std::min(left_bytes, download_.window_bytes);
    const int64_t bytes = std::max<int64_t>(0, target_bytes - paid_bytes_);
    paid_bytes_ += bytes;
    return download_.pacer->Take(bytes);
  }

  // Payload bytes that have not come.
  int64_t LeftBytes() const {
    return download_.layout
               ->BlockElements(download_.fragment, {download_.next_block,
                                                    download_.blocks.end})
               .size() *
           static_cast<int64_t>(sizeof(float));
  }

  // Takes in the message that was read.
  absl::Status Take() {
    ASSIGN_OR_RETURN(auto message, rpc::DecodeBulk<Message>(message_));
    message_.Clear();
    if (message.is_chunk) return TakeChunk(message.chunk);
    if (message.message.has_header()) {
      return TakeHeader(message.message.header());
    }
    return absl::OkStatus();  // From a newer server: not for us.
  }

  absl::Status TakeHeader(const v1::PullHeader& header) {
    if (has_header_) return absl::InternalError("a second header in a pull");
    if (header.version() != download_.version) {
      return absl::InternalError(absl::StrCat(
          "asked for version ", download_.version, ", got ", header.version()));
    }
    if (header.codec() != v1::CODEC_F32) {
      return absl::InternalError(
          absl::StrCat("a pull in codec ", static_cast<int>(header.codec()),
                       ", which this program does not know"));
    }
    if (header.range().begin() != download_.next_block ||
        header.range().end() != download_.blocks.end) {
      return absl::InternalError(
          absl::StrCat("asked for blocks [", download_.next_block, ", ",
                       download_.blocks.end, "), got [", header.range().begin(),
                       ", ", header.range().end(), ")"));
    }
    has_header_ = true;
    part_digest_ = Digest128::FromProto(header.digest());
    events_.Moved(0);
    return absl::OkStatus();
  }

  absl::Status TakeChunk(const rpc::ReceivedChunk& chunk) {
    const rpc::ChunkHeader& header = chunk.header;
    if (!has_header_) return absl::InternalError("a chunk before the header");
    if (header.first_block != download_.next_block || header.block_count < 1 ||
        header.block_count > download_.blocks.end - download_.next_block ||
        header.codec != v1::CODEC_F32) {
      return absl::InternalError(
          absl::StrCat("a chunk of ", header.block_count, " blocks from ",
                       header.first_block, " where block ",
                       download_.next_block, " was due"));
    }
    const RunLayout& layout = *download_.layout;
    const IndexRange blocks = {header.first_block,
                               header.first_block + header.block_count};
    const IndexRange span = layout.BlockElements(download_.fragment, blocks);
    if (chunk.payload_bytes !=
        static_cast<size_t>(span.size()) * sizeof(float)) {
      return absl::InternalError(
          absl::StrCat("a chunk of ", chunk.payload_bytes, " bytes for ",
                       span.size(), " elements"));
    }
    // Each block is copied, summed and digested while it is in the cache. What
    // is wrong is in the caller's memory then, and is written again.
    rpc::PayloadReader payload(chunk);
    uint32_t crc = rpc::ChunkCrc32c(header, {});
    Digest128 digest;
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      const IndexRange at =
          layout.BlockElements(download_.fragment, {block, block + 1});
      const absl::Span<float> out = download_.out.subspan(
          static_cast<size_t>(at.begin), static_cast<size_t>(at.size()));
      const absl::Span<char> bytes(reinterpret_cast<char*>(out.data()),
                                   out.size() * sizeof(float));
      payload.Read(bytes.size(), bytes.data());
      crc = codec::ExtendCrc32c(crc, {bytes.data(), bytes.size()});
      digest += BlockDigest(block, out);
    }
    if (crc != header.crc32c) {
      return absl::DataLossError(
          "a chunk's checksum does not match: send it again");
    }
    download_.digest += digest;
    download_.next_block = blocks.end;
    received_bytes_ += static_cast<int64_t>(chunk.payload_bytes);
    events_.Moved(static_cast<int64_t>(chunk.payload_bytes));
    events_.Advanced();
    return absl::OkStatus();
  }

  absl::Status Finish(const absl::Status& status) {
    if (!failure_.ok()) return failure_;
    RETURN_IF_ERROR(status);
    if (!has_header_ || download_.next_block != download_.blocks.end) {
      return absl::UnavailableError(
          "the server ended the stream before all blocks had come");
    }
    if (download_.digest != part_digest_) {
      download_.StartOver();
      return absl::DataLossError(
          "the blocks are not those of the server's digest");
    }
    return absl::OkStatus();
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  Download& download_;
  StreamEvents& events_;
  // Of the one reaction that runs at a time: reads follow each other, and
  // OnDone comes last.
  grpc::ByteBuffer message_;
  bool has_header_ = false;
  Digest128 part_digest_;
  absl::Status failure_;  // Found here; wins over the call's status.
  int64_t received_bytes_ = 0;  // Payload, on this stream.
  int64_t paid_bytes_ = 0;      // Taken from the pacer for it.
  Delay delay_;
};

}  // namespace

std::unique_ptr<BulkStream> MakeDownloadStream(
    const std::shared_ptr<grpc::Channel>& channel, const std::string& session,
    v1::PullParametersRequest request, Download& download,
    StreamEvents& events) {
  return std::make_unique<DownloadStream>(channel, session, std::move(request),
                                          download, events);
}

}  // namespace atl::server
