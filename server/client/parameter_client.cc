#include "server/client/parameter_client.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/codec/codec.h"
#include "base/codec/f32_bytes.h"
#include "base/layout/encoded_layout.h"
#include "base/rpc/call.h"
#include "base/rpc/chunk_codec.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"
#include "server/client/borrow_tracker.h"
#include "server/client/download_stream.h"
#include "server/client/pacer.h"
#include "server/client/route_table.h"
#include "server/client/shard_driver.h"
#include "server/client/upload_ledger.h"
#include "server/client/upload_stream.h"

namespace atl::server {
namespace {

constexpr char kPushMethod[] = "/atoll.v1.ParameterService/PushOuterGradient";
constexpr char kImportMethod[] = "/atoll.v1.ParameterService/ImportParameters";

// A connection that holds borrowed memory longer after the call is closed.
constexpr absl::Duration kReturnGrace = absl::Seconds(1);

// Bytes that a server may send ahead of the chunk that is read. They take
// memory and are lost when the connection breaks.
constexpr int kWindowBytes = 64 << 10;

// Bytes that all servers may send ahead in a capped download, as time: the
// longest round trip that does not slow a pull.
constexpr absl::Duration kCappedWindowSpan = absl::Milliseconds(200);
constexpr int64_t kCappedWindowBytesMin = 16 << 10;
constexpr int64_t kCappedWindowBytesMax = 4 << 20;

constexpr int64_t kNoCap = int64_t{1} << 40;

TransferOutcome Refused(absl::Status status) { return {std::move(status), {}}; }

// Payload of a client's first chunk; halved if its stream ends as too slow.
constexpr int64_t kFirstChunkBytes = 128 << 10;

// The chunk sizes that each shard's last transfer reached; the next one starts
// with them. Thread-safe; of concurrent transfers the last to end wins.
class SizerMemory {
 public:
  explicit SizerMemory(int64_t bytes_max) : bytes_max_(bytes_max) {}

  std::vector<rpc::ChunkSizer> Recall(int32_t shard, int count) {
    MutexLock lock(&mutex_);
    std::vector<rpc::ChunkSizer> sizers = sizers_[shard];
    sizers.resize(static_cast<size_t>(count), First());
    return sizers;
  }
  void Keep(int32_t shard, const std::vector<rpc::ChunkSizer>& sizers) {
    MutexLock lock(&mutex_);
    std::vector<rpc::ChunkSizer>& kept = sizers_[shard];
    kept.resize(std::max(kept.size(), sizers.size()), First());
    std::copy(sizers.begin(), sizers.end(), kept.begin());
  }

 private:
  rpc::ChunkSizer First() const {
    return rpc::ChunkSizer(bytes_max_, kFirstChunkBytes);
  }

  const int64_t bytes_max_;
  Mutex mutex_;
  std::map<int32_t, std::vector<rpc::ChunkSizer>> sizers_
      ABSL_GUARDED_BY(mutex_);
};

class UploadPart : public ShardPart {
 public:
  using MakeHeader = std::function<grpc::ByteBuffer(int64_t placement_epoch)>;

  UploadPart(int32_t shard, int stream_count, RouteTable& routes,
             SizerMemory& memory, Upload upload, bool by_units, bool is_new,
             MakeHeader make_header)
      : shard_(shard),
        routes_(routes),
        memory_(memory),
        upload_(std::move(upload)),
        make_header_(std::move(make_header)),
        ledger_(upload_.blocks, upload_.layout->ByteCount(upload_.blocks),
                by_units ? codec::kChunkBlocksUnit : 1),
        sizers_(memory.Recall(shard, stream_count)),
        to_begin_at_once_(is_new ? stream_count : 0, true) {
    if (!is_new) return;
    // The answer that the shard would give.
    std::vector<IndexRange> all;
    for (const IndexRange held : upload_.layout->held()) {
      const IndexRange ours = {std::max(held.begin, upload_.blocks.begin),
                               std::min(held.end, upload_.blocks.end)};
      if (!ours.empty()) all.push_back(ours);
    }
    ledger_.Answered(ledger_.Asked(), all);
  }
  ~UploadPart() override { memory_.Keep(shard_, sizers_); }

  int32_t shard() const override { return shard_; }
  std::optional<int64_t> done_bytes() const override {
    return ledger_.done_bytes();
  }
  int stream_count() const override { return static_cast<int>(sizers_.size()); }
  bool is_done() const override { return ledger_.is_stored(); }

  absl::StatusOr<std::unique_ptr<BulkStream>> Open(
      int index, StreamEvents& events) override {
    ASSIGN_OR_RETURN(const Route route, routes_.Find(shard_, index));
    Upload upload = upload_;
    upload.header = make_header_(route.placement_epoch);
    upload.peer = route.peer;
    upload.ledger = &ledger_;
    upload.index = index;
    upload.sizer = &sizers_[index];
    // Only the first stream: after a break the shard must be asked.
    if (!to_begin_at_once_.empty()) {
      upload.at_once = to_begin_at_once_[index];
      to_begin_at_once_[index] = false;
    }
    return MakeUploadStream(route.channel, std::move(upload), events);
  }

 private:
  const int32_t shard_;
  RouteTable& routes_;
  SizerMemory& memory_;
  const Upload upload_;
  const MakeHeader make_header_;
  UploadLedger ledger_;
  std::vector<rpc::ChunkSizer> sizers_;  // One a stream.
  std::vector<bool> to_begin_at_once_;   // One a stream; empty unless is_new.
};

class DownloadPart : public ShardPart {
 public:
  DownloadPart(v1::PullParametersRequest request, RouteTable& routes,
               SizerMemory& memory, std::string session, int stream_count,
               Download download)
      : request_(std::move(request)),
        routes_(routes),
        memory_(memory),
        session_(std::move(session)),
        total_(stream_count, download.is_shard),
        sizers_(memory.Recall(request_.shard(), stream_count)) {
    download.total = &total_;
    for (int i = 0; i < stream_count; ++i) {
      download.sizer = &sizers_[i];
      download.blocks = TakeStripe(download.part, stream_count, i);
      download.Begin();
      stripes_.push_back(download);
    }
  }
  ~DownloadPart() override { memory_.Keep(shard(), sizers_); }

  int32_t shard() const override { return request_.shard(); }
  int stream_count() const override {
    return static_cast<int>(stripes_.size());
  }

  absl::StatusOr<std::unique_ptr<BulkStream>> Open(
      int index, StreamEvents& events) override {
    ASSIGN_OR_RETURN(const Route route, routes_.Find(shard(), index));
    v1::PullParametersRequest request = request_;
    request.set_placement_epoch(route.placement_epoch);
    Download& stripe = stripes_[index];
    stripe.peer = route.peer;
    return MakeDownloadStream(route.channel, session_, std::move(request),
                              stripe, events);
  }

  const DownloadTotal& total() const { return total_; }

 private:
  const v1::PullParametersRequest request_;
  RouteTable& routes_;
  SizerMemory& memory_;
  const std::string session_;
  DownloadTotal total_;
  std::vector<rpc::ChunkSizer> sizers_;  // One a stream.
  std::vector<Download> stripes_;  // One a stream.
};

class GrpcParameterClient : public ParameterClient {
 public:
  GrpcParameterClient(const ParameterClientOptions& options,
                      const RunLayout& layout)
      : options_(options),
        layout_(layout),
        routes_(options.channel),
        up_pacer_(options.caps.up_bytes_per_second),
        down_pacer_(options.caps.down_bytes_per_second) {}

  void SetRoutes(ShardRoutes routes) override {
    routes_.Set(std::move(routes));
  }

  void SetIdentity(PushIdentity identity) override {
    MutexLock lock(&mutex_);
    identity_ = std::move(identity);
  }

  TransferOutcome Push(const v1::ContributionInfo& info,
                       absl::Span<const char> encoded,
                       const CallBounds& bounds) override {
    const int32_t fragment = info.key().fragment();
    const codec::Codec* const codec = codec::FindCodec(info.codec());
    const absl::Status fits = CheckEncoded(fragment, codec, encoded.size());
    if (!fits.ok()) return Refused(fits);
    const PushIdentity identity = Identity();
    Upload upload;
    upload.method = kPushMethod;
    upload.session = rpc::ToHex(identity.session_secret);
    upload.chunk.has_key = true;
    upload.chunk.run_epoch = info.key().run_epoch();
    upload.chunk.fragment = fragment;
    upload.chunk.slot = info.key().slot();
    upload.chunk.seq = info.key().seq();
    upload.chunk.codec = info.codec();
    v1::PushHeader header;
    header.set_run_id(options_.run_id);
    header.set_run_uid(options_.run_uid);
    header.set_island_id(identity.island_id);
    header.set_island_epoch(identity.island_epoch);
    *header.mutable_info() = info;
    header.set_layout_fingerprint(layout_.fingerprint());
    return SendAll(
        std::move(upload), *codec, encoded, bounds,
        [&header](int32_t shard, IndexRange /*blocks*/) {
          return [header, shard](int64_t placement_epoch) {
            v1::PushOuterGradientRequest request;
            *request.mutable_header() = header;
            request.mutable_header()->set_shard(shard);
            request.mutable_header()->set_placement_epoch(placement_epoch);
            return rpc::EncodeMessage(request);
          };
        });
  }

  TransferOutcome Import(int32_t fragment, absl::Span<const float> elements,
                         const CallBounds& bounds) override {
    const absl::Status fits = CheckElements(fragment, elements.size());
    if (!fits.ok()) return Refused(fits);
    Upload upload;
    upload.method = kImportMethod;
    upload.session = rpc::ToHex(Identity().session_secret);
    upload.chunk.has_key = true;
    upload.chunk.fragment = fragment;
    upload.chunk.codec = v1::CODEC_F32;
    const codec::Codec& f32 = codec::GetCodec(codec::CodecId::kF32);
    const absl::Span<const char> bytes = codec::F32Bytes(elements);
    return SendAll(
        std::move(upload), f32, bytes, bounds,
        [&](int32_t shard, IndexRange blocks) {
          v1::ImportParametersRequest request;
          v1::ImportHeader* header = request.mutable_header();
          header->set_run_id(options_.run_id);
          header->set_run_uid(options_.run_uid);
          header->set_fragment(fragment);
          header->set_layout_fingerprint(layout_.fingerprint());
          header->set_shard(shard);
          const IndexRange span = layout_.BlockElements(fragment, blocks);
          *header->mutable_digest() =
              RangeDigest(layout_, fragment, blocks,
                          elements.subspan(span.begin, span.size()))
                  .ToProto();
          return [request](int64_t /*placement_epoch*/) {
            return rpc::EncodeMessage(request);
          };
        });
  }

  TransferOutcome Pull(int32_t fragment, int64_t version,
                       const std::optional<Digest128>& expected,
                       absl::Span<float> out,
                       const CallBounds& bounds) override {
    Download download;
    download.fragment = fragment;
    download.version = version;
    download.out = out;
    Digest128 digest;
    TransferOutcome outcome = ReceiveAll(download, bounds, digest);
    if (outcome.status.ok() && expected.has_value() && digest != *expected &&
        options_.held.empty()) {
      outcome.status = absl::DataLossError(absl::StrCat(
          "fragment ", fragment, " at version ", version, " has digest ",
          digest.ToHex(), ", but ", expected->ToHex(), " was committed"));
    }
    return outcome;
  }

  TransferOutcome PullReplica(int32_t fragment, int64_t version,
                              int64_t from_version, absl::Span<float> out,
                              const CallBounds& bounds) override {
    if (from_version > version) {
      return Refused(absl::InvalidArgumentError(
          absl::StrCat("version ", version, " is older than from_version ",
                       from_version)));
    }
    Download download;
    download.fragment = fragment;
    download.version = version;
    download.out = out;
    download.is_replica = true;
    download.from_version = from_version;
    Digest128 digest;
    return ReceiveAll(download, bounds, digest);
  }

  TransferCounters counters() const override {
    return {sent_bytes_, received_bytes_};
  }

 private:
  DriverOptions Options() const {
    return {options_.retry, options_.seed, options_.stall_timeout};
  }

  int StreamCount(int64_t part_bytes, const Pacer& pacer) const {
    return ChooseStreamCount(part_bytes, options_.shard_count,
                             options_.stream_count,
                             pacer.BytesIn(absl::Milliseconds(100), 0, kNoCap));
  }

  // One stream under a cap: its window already covers the round trip.
  int DownloadStreamCount(int32_t fragment, IndexRange part) const {
    if (down_pacer_.is_capped()) return 1;
    const IndexRange span = layout_.BlockElements(fragment, part);
    return StreamCount(span.size() * static_cast<int64_t>(sizeof(float)),
                       down_pacer_);
  }

  PushIdentity Identity() const {
    MutexLock lock(&mutex_);
    return identity_;
  }

  absl::Status CheckFragment(int32_t fragment) const {
    if (fragment < 0 || fragment >= layout_.fragment_count()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no fragment ", fragment, " in the layout"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckEncoded(int32_t fragment, const codec::Codec* codec,
                            size_t byte_count) const {
    RETURN_IF_ERROR(CheckFragment(fragment));
    if (codec == nullptr) {
      return absl::InvalidArgumentError(
          "info.codec is unknown to this program");
    }
    const int64_t expected =
        EncodedLayout(layout_, fragment, *codec, Held(fragment)).byte_count();
    if (static_cast<int64_t>(byte_count) != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("fragment ", fragment, " takes ", expected, " bytes as ",
                       codec::CodecName(codec->id()), ", not ", byte_count));
    }
    return absl::OkStatus();
  }

  absl::Status CheckElements(int32_t fragment, size_t element_count) const {
    RETURN_IF_ERROR(CheckFragment(fragment));
    int64_t expected = 0;
    for (const IndexRange blocks : Held(fragment)) {
      expected += layout_.BlockElements(fragment, blocks).size();
    }
    if (static_cast<int64_t>(element_count) != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("fragment ", fragment, " has ", expected,
                       " elements, not ", element_count));
    }
    return absl::OkStatus();
  }

  // The blocks that this process holds.
  std::vector<IndexRange> Held(int32_t fragment) const {
    if (!options_.held.empty()) return options_.held[fragment];
    return {{0, layout_.fragment_block_count(fragment)}};
  }

  // Uploads every shard's part. `make_header(shard, blocks)`: a MakeHeader.
  template <typename MakeHeader>
  TransferOutcome SendAll(Upload upload, const codec::Codec& codec,
                          absl::Span<const char> encoded,
                          const CallBounds& bounds, MakeHeader make_header) {
    const EncodedLayout layout(layout_, upload.chunk.fragment, codec,
                               Held(upload.chunk.fragment));
    BorrowTracker tracker;
    upload.layout = &layout;
    upload.encoded = encoded;
    upload.tracker = &tracker;
    upload.pacer = &up_pacer_;
    std::vector<std::unique_ptr<ShardPart>> parts;
    const int64_t even_bytes = layout.byte_count() / options_.shard_count;
    const int stream_count =
        StreamCount(even_bytes, up_pacer_) * options_.shard_count;
    upload.chunk_bytes_max = ChunkBytesMax(stream_count);
    if (options_.whole_units) {
      upload.chunk_bytes_max = std::max(
          upload.chunk_bytes_max,
          codec::kChunkBlocksUnit * static_cast<int64_t>(codec.EncodedBytes(
                                        codec::kBlockElements)));
    }
    for (int32_t shard = 0; shard < options_.shard_count; ++shard) {
      upload.blocks = layout_.ShardBlocks(upload.chunk.fragment, shard,
                                          options_.shard_count);
      if (layout.ByteCount(upload.blocks) == 0) continue;
      parts.push_back(std::make_unique<UploadPart>(
          shard, StreamCount(layout.ByteCount(upload.blocks), up_pacer_),
          routes_, up_sizers_, upload, options_.whole_units,
          // At level ISLAND a shard takes chunks only after its answer.
          bounds.is_new && !options_.whole_units,
          make_header(shard, upload.blocks)));
    }
    TransferOutcome outcome = DriveShards(parts, Options(), bounds);
    for (const ShardOutcome& shard : outcome.shards) {
      sent_bytes_ += shard.payload_bytes;
    }
    // A stuck connection keeps its unsent slices until it is closed: at the
    // latest when TCP gives up, which keepalive bounds.
    if (!tracker.WaitUntilReturned(kReturnGrace)) {
      routes_.DropAll();
      while (!tracker.WaitUntilReturned(absl::Seconds(10))) {
      }
    }
    return outcome;
  }

  // Downloads every shard's part of `wanted`, whose blocks are not set.
  // `digest` gets the sum over what came.
  TransferOutcome ReceiveAll(const Download& wanted, const CallBounds& bounds,
                             Digest128& digest) {
    const absl::Status fits = CheckElements(wanted.fragment, wanted.out.size());
    if (!fits.ok()) return Refused(fits);
    if (wanted.version < 0) {
      return Refused(absl::InvalidArgumentError("version is negative"));
    }
    std::vector<std::unique_ptr<ShardPart>> parts;
    const std::string session = rpc::ToHex(Identity().session_secret);
    for (int32_t shard = 0; shard < options_.shard_count; ++shard) {
      const IndexRange blocks =
          layout_.ShardBlocks(wanted.fragment, shard, options_.shard_count);
      for (Download& download : CutDownload(wanted, blocks)) {
        v1::PullParametersRequest request;
        request.set_run_id(options_.run_id);
        request.set_run_uid(options_.run_uid);
        request.set_run_epoch(bounds.run_epoch);
        request.set_fragment(wanted.fragment);
        request.set_version(wanted.version);
        request.set_layout_fingerprint(layout_.fingerprint());
        request.set_shard(shard);
        parts.push_back(std::make_unique<DownloadPart>(
            std::move(request), routes_, down_sizers_, session,
            DownloadStreamCount(wanted.fragment, download.part),
            std::move(download)));
      }
    }
    TransferOutcome outcome = DriveShards(parts, Options(), bounds);
    for (const ShardOutcome& shard : outcome.shards) {
      received_bytes_ += shard.payload_bytes;
    }
    for (const auto& part : parts) {
      const auto& total = static_cast<const DownloadPart&>(*part).total();
      digest += total.digest();
      if (options_.held.empty()) continue;
      if (outcome.digests.empty() ||
          outcome.digests.back().shard != part->shard()) {
        outcome.digests.push_back({part->shard(), {}, total.expected()});
      }
      outcome.digests.back().came += total.digest();
    }
    return outcome;
  }

  // One download for each run of held blocks within the shard's `blocks`.
  std::vector<Download> CutDownload(const Download& wanted,
                                    IndexRange blocks) {
    std::vector<Download> cut;
    int64_t held_offset = 0;  // The run's, in `wanted.out`.
    for (const IndexRange run : Held(wanted.fragment)) {
      const IndexRange elements = layout_.BlockElements(wanted.fragment, run);
      const IndexRange part = {std::max(run.begin, blocks.begin),
                               std::min(run.end, blocks.end)};
      if (!part.empty()) {
        Download& download = cut.emplace_back(wanted);
        download.layout = &layout_;
        download.part = part;
        download.is_shard = part == blocks;
        download.out_begin = elements.begin;
        download.out = wanted.out.subspan(held_offset, elements.size());
        download.pacer = &down_pacer_;
        download.window_bytes = options_.channel.receive_window_bytes;
      }
      held_offset += elements.size();
    }
    return cut;
  }

  const ParameterClientOptions options_;
  const RunLayout& layout_;
  RouteTable routes_;
  SizerMemory up_sizers_{rpc::ChunkSizer::kBytesMax};
  SizerMemory down_sizers_{rpc::ChunkSizer::kPullBytesMax};
  Pacer up_pacer_;
  Pacer down_pacer_;
  std::atomic<int64_t> sent_bytes_{0};
  std::atomic<int64_t> received_bytes_{0};
  mutable Mutex mutex_;
  PushIdentity identity_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

ParameterClientOptions MakeRunOptions(const v1::Run& run) {
  ParameterClientOptions options;
  options.run_id = run.run_id();
  options.run_uid = run.run_uid();
  options.shard_count = run.spec().server_count();
  options.whole_units = run.spec().durability() == v1::DURABILITY_ISLAND;
  return options;
}

absl::StatusOr<std::unique_ptr<ParameterClient>> MakeParameterClient(
    const ParameterClientOptions& options, const RunLayout& layout) {
  if (options.shard_count < 1) {
    return absl::InvalidArgumentError("shard_count must be at least 1");
  }
  if (options.stall_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("stall_timeout must be positive");
  }
  if (options.stream_count < 1) {
    return absl::InvalidArgumentError("stream_count must be at least 1");
  }
  if (!options.held.empty() &&
      options.held.size() != static_cast<size_t>(layout.fragment_count())) {
    return absl::InvalidArgumentError(
        "options.held must have one entry for each fragment");
  }
  RETURN_IF_ERROR(CheckCaps(options.caps, options.shard_count));
  RETURN_IF_ERROR(rpc::CheckTlsFiles(options.channel.tls));
  ParameterClientOptions used = options;
  if (used.channel.receive_window_bytes == 0) {
    used.channel.receive_window_bytes = kWindowBytes;
  }
  if (const Pacer down(options.caps.down_bytes_per_second);
      down.is_capped()) {
    used.channel.receive_window_bytes = static_cast<int>(std::max(
        kCappedWindowBytesMin,
        down.BytesIn(kCappedWindowSpan, 0, kCappedWindowBytesMax) /
            options.shard_count));
  }
  return std::make_unique<GrpcParameterClient>(used, layout);
}

}  // namespace atl::server
