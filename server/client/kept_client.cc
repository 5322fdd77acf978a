#include "server/client/kept_client.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/layout/encoded_layout.h"
#include "base/rpc/call.h"
#include "base/rpc/chunk_codec.h"
#include "base/rpc/retry.h"
#include "base/rpc/status.h"
#include "base/rpc/certificates/tls.h"
#include "base/status/status_macros.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/client/shard_driver.h"

namespace atl::server {
namespace {

using Message = v1::PullKeptResponse;

constexpr rpc::RetryPolicy kRetry = {.initial_delay = absl::Milliseconds(10),
                                     .max_delay = absl::Seconds(2)};
// A stream that moves nothing for this long is cancelled and retried.
constexpr absl::Duration kStallTimeout = absl::Seconds(60);

struct Download {
  const EncodedLayout* layout = nullptr;
  IndexRange blocks;      // The part's; not empty.
  int64_t next_block = 0;  // All before it have arrived.
  absl::Span<char> out;   // From block `out_begin` on.
  int64_t out_begin = 0;
  std::string peer;  // For messages.
  KeptDigests digests;
};

class KeptStream
    : public BulkStream,
      public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  KeptStream(const std::shared_ptr<grpc::Channel>& channel,
             v1::PullKeptRequest request, Download& download,
             StreamEvents& events)
      : stub_(channel), download_(download), events_(events) {
    request.mutable_range()->set_begin(download.next_block);
    request.mutable_range()->set_end(download.blocks.end);
    request_ = rpc::EncodeMessage(request);
    stub_.PrepareBidiStreamingCall(
        &context_, "/atoll.v1.ParameterService/PullKept", {}, this);
  }

  void Start() override {
    StartRead(&message_);
    StartWriteLast(&request_, grpc::WriteOptions());
    StartCall();
  }

  void Cancel() override { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    failure_ = Take();
    if (failure_.ok()) {
      StartRead(&message_);
    } else {
      context_.TryCancel();
    }
  }

  void OnDone(const grpc::Status& status) override {
    events_.Done(Finish(rpc::NamePeer(rpc::FromGrpc(status), download_.peer)));
  }

 private:
  absl::Status Take() {
    ASSIGN_OR_RETURN(auto message, rpc::DecodeBulk<Message>(message_));
    message_.Clear();
    if (message.is_chunk) return TakeChunk(message.chunk);
    if (!message.message.has_header()) return absl::OkStatus();
    const v1::KeptHeader& header = message.message.header();
    if (has_header_ || header.range().begin() != download_.next_block ||
        header.range().end() != download_.blocks.end ||
        static_cast<int32_t>(header.codec()) !=
            static_cast<int32_t>(download_.layout->codec().id())) {
      return absl::InternalError(
          "the server answered with something that was not asked for");
    }
    has_header_ = true;
    download_.digests.digest = Digest128::FromProto(header.digest());
    if (header.has_replica_digest()) {
      download_.digests.replica_digest =
          Digest128::FromProto(header.replica_digest());
    }
    events_.Moved(0);
    return absl::OkStatus();
  }

  absl::Status TakeChunk(const rpc::ReceivedChunk& chunk) {
    const rpc::ChunkHeader& header = chunk.header;
    const bool fits =
        has_header_ && header.block_count >= 1 &&
        header.first_block == download_.next_block &&
        header.block_count <= download_.blocks.end - download_.next_block;
    const IndexRange blocks = {
        header.first_block,
        header.first_block + (fits ? header.block_count : 0)};
    if (!fits || header.codec != static_cast<int32_t>(
                                     download_.layout->codec().id()) ||
        static_cast<int64_t>(chunk.payload_bytes) !=
            download_.layout->ByteCount(blocks)) {
      return absl::InternalError(absl::StrCat(
          "a chunk of ", header.block_count, " blocks from ",
          header.first_block, ", ", chunk.payload_bytes, " bytes, where block ",
          download_.next_block, " was due"));
    }
    RETURN_IF_ERROR(rpc::CheckCrc32c(chunk));
    chunk.CopyPayload(
        download_.out.data() +
        download_.layout->ByteCount({download_.out_begin, blocks.begin}));
    download_.next_block = blocks.end;
    events_.Moved(static_cast<int64_t>(chunk.payload_bytes));
    events_.Advanced();
    return absl::OkStatus();
  }

  absl::Status Finish(const absl::Status& status) const {
    if (!failure_.ok()) return failure_;
    RETURN_IF_ERROR(status);
    if (download_.next_block == download_.blocks.end) return absl::OkStatus();
    return absl::UnavailableError(
        "the server ended the stream before all blocks had come");
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  Download& download_;
  StreamEvents& events_;
  // Used by one reaction at a time: reads follow each other, OnDone comes last.
  grpc::ByteBuffer message_;
  bool has_header_ = false;
  absl::Status failure_;  // Found here; replaces the call's status.
};

class KeptPart : public ShardPart {
 public:
  KeptPart(RouteTable& routes, v1::PullKeptRequest request, Download download)
      : routes_(routes),
        request_(std::move(request)),
        download_(std::move(download)) {}

  int32_t shard() const override { return request_.shard(); }
  const KeptDigests& digests() const { return download_.digests; }

  absl::StatusOr<std::unique_ptr<BulkStream>> Open(
      int index, StreamEvents& events) override {
    ASSIGN_OR_RETURN(const Route route, routes_.Find(shard(), index));
    v1::PullKeptRequest request = request_;
    request.set_placement_epoch(route.placement_epoch);
    download_.peer = route.peer;
    return std::make_unique<KeptStream>(route.channel, std::move(request),
                                        download_, events);
  }

 private:
  RouteTable& routes_;
  const v1::PullKeptRequest request_;
  Download download_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KeptClient>> KeptClient::Create(
    const KeptClientOptions& options, const RunLayout& layout,
    ShardRoutes routes) {
  if (options.shard_count < 1) {
    return absl::InvalidArgumentError("shard_count must be at least 1");
  }
  RETURN_IF_ERROR(rpc::CheckTlsFiles(options.channel.tls));
  auto client = std::unique_ptr<KeptClient>(new KeptClient(options, layout));
  client->SetRoutes(std::move(routes));
  return client;
}

absl::Status KeptClient::Pull(const v1::PullKeptRequest& wanted,
                              const codec::Codec& codec, IndexRange blocks,
                              absl::Span<char> out, const CallBounds& bounds,
                              std::vector<KeptDigests>* digests) {
  const int32_t fragment = wanted.fragment();
  if (fragment < 0 || fragment >= layout_.fragment_count() ||
      blocks.begin < 0 || blocks.begin > blocks.end ||
      blocks.end > layout_.fragment_block_count(fragment)) {
    return absl::InvalidArgumentError("no such fragment, or no such blocks");
  }
  const EncodedLayout layout(layout_, fragment, codec);
  if (static_cast<int64_t>(out.size()) != layout.ByteCount(blocks)) {
    return absl::InvalidArgumentError(
        absl::StrCat("these blocks take ", layout.ByteCount(blocks),
                     " bytes, not ", out.size()));
  }
  std::vector<std::unique_ptr<ShardPart>> parts;
  for (int32_t shard = 0; shard < options_.shard_count; ++shard) {
    const IndexRange held =
        layout_.ShardBlocks(fragment, shard, options_.shard_count);
    Download download;
    download.layout = &layout;
    download.blocks = {std::max(held.begin, blocks.begin),
                       std::min(held.end, blocks.end)};
    if (download.blocks.begin >= download.blocks.end) continue;
    download.next_block = download.blocks.begin;
    download.out = out;
    download.out_begin = blocks.begin;
    download.digests.shard = shard;
    v1::PullKeptRequest request = wanted;
    request.set_run_id(options_.run_id);
    request.set_layout_fingerprint(layout_.fingerprint());
    request.set_shard(shard);
    parts.push_back(std::make_unique<KeptPart>(routes_, std::move(request),
                                               std::move(download)));
  }
  const absl::Status status =
      DriveShards(parts, {kRetry, rpc::RandomSeed(), kStallTimeout}, bounds)
          .status;
  if (digests == nullptr) return status;
  digests->clear();
  for (const auto& part : parts) {
    digests->push_back(static_cast<const KeptPart&>(*part).digests());
  }
  return status;
}

}  // namespace atl::server
