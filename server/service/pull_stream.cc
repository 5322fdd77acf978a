#include "server/service/pull_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/codec/block_grid.h"
#include "base/codec/crc32c.h"
#include "base/rpc/authorization.h"
#include "base/rpc/status.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "server/service/data_status.h"

namespace atl::server {
namespace {

using Code = absl::StatusCode;

constexpr int64_t kF32BlockBytes =
    codec::kBlockElements * static_cast<int64_t>(sizeof(float));

}  // namespace

struct PullStream::Payload {
  // Bytes lent to gRPC: a version's or a delta's image, or a buffer of `pool`.
  struct Loan {
    VersionImage image;
    std::shared_ptr<BufferPool> pool;
    BufferPool::Buffer buffer;
  };

  static void EndLoan(void* argument) {
    std::unique_ptr<Loan> loan(static_cast<Loan*>(argument));
    if (loan->pool != nullptr) loan->pool->Give(std::move(loan->buffer));
  }

  float* Take(const std::shared_ptr<BufferPool>& pool) {
    loan->pool = pool;
    loan->buffer = pool->Take();
    return loan->buffer.get();
  }

  ~Payload() {
    if (loan != nullptr) EndLoan(loan.release());
  }

  std::unique_ptr<Loan> loan = std::make_unique<Loan>();
  absl::string_view bytes;
};

PullStream* PullStream::Start(grpc::CallbackServerContext* call,
                              const grpc::ByteBuffer& request,
                              const ServiceContext& context) {
  return StartWith(&PullStream::Open, call, request, context);
}

PullStream* PullStream::StartKept(grpc::CallbackServerContext* call,
                                  const grpc::ByteBuffer& request,
                                  const ServiceContext& context) {
  return StartWith(&PullStream::OpenKept, call, request, context);
}

PullStream* PullStream::StartWith(
    absl::Status (PullStream::*open)(const grpc::ByteBuffer&),
    grpc::CallbackServerContext* call, const grpc::ByteBuffer& request,
    const ServiceContext& context) {
  auto* const stream = new PullStream(call, context);
  // Before `open`, because the place bounds what readers hold.
  absl::Status begun = context.pull_watchdog.Add(
      stream->gate_, stream->progress_, stream->caller_);
  if (begun.ok()) begun = (stream->*open)(request);
  if (!begun.ok()) stream->FinishWith(begun);
  return stream;
}

PullStream::PullStream(grpc::CallbackServerContext* call,
                       const ServiceContext& context)
    : call_(call),
      context_(context),
      caller_(rpc::GetCallerName(*call)),
      gate_(std::make_shared<WaiterGate>(this)),
      progress_(std::make_shared<StreamProgress>()) {}

absl::Status PullStream::Open(const grpc::ByteBuffer& bytes) {
  v1::PullParametersRequest request;
  RETURN_IF_ERROR(ReadRequest(bytes, &request));
  ASSIGN_OR_RETURN(source_, shard_->OpenPull(request, reader()));
  RETURN_IF_ERROR(Begin(request));
  v1::PullParametersResponse response;
  v1::PullHeader* header = response.mutable_header();
  header->set_version(source_.version);
  header->set_commit_seq(source_.held.commit_seq);
  header->mutable_range()->set_begin(left_.begin);
  header->mutable_range()->set_end(left_.end);
  header->set_codec(v1::CODEC_F32);
  *header->mutable_digest() = source_.digest.ToProto();
  header->set_content(source_.content);
  if (source_.content == v1::PULL_CONTENT_CHAIN) {
    header->set_codec(static_cast<v1::Codec>(
        shard_->store().versions().deltas()->layout(fragment_).codec().id()));
    header->set_from_version(source_.from_version);
  }
  WriteFirst(response);
  return absl::OkStatus();
}

absl::Status PullStream::OpenKept(const grpc::ByteBuffer& bytes) {
  v1::PullKeptRequest request;
  RETURN_IF_ERROR(ReadRequest(bytes, &request));
  ASSIGN_OR_RETURN(source_, shard_->OpenKept(request, reader()));
  RETURN_IF_ERROR(Begin(request));
  v1::PullKeptResponse response;
  v1::KeptHeader* header = response.mutable_header();
  header->mutable_range()->set_begin(left_.begin);
  header->mutable_range()->set_end(left_.end);
  header->set_codec(source_.kept == nullptr ? v1::CODEC_F32
                                            : source_.kept->info().codec());
  if (source_.kept != nullptr) {
    *header->mutable_digest() = source_.digest.ToProto();
    if (shard_->store().versions().deltas() != nullptr) {
      *header->mutable_replica_digest() = source_.replica_digest.ToProto();
    }
  }
  WriteFirst(response);
  return absl::OkStatus();
}

template <typename Request>
absl::Status PullStream::ReadRequest(const grpc::ByteBuffer& bytes,
                                     Request* request) {
  if (!rpc::DecodeMessage(bytes, request)) {
    return Refuse(Code::kInvalidArgument, "UNREADABLE_MESSAGE",
                  "the request cannot be parsed");
  }
  ASSIGN_OR_RETURN(const rpc::Caller caller, rpc::GetCaller(*call_));
  ASSIGN_OR_RETURN(shard_, context_.find_shard(request->run_id()));
  // First: a plan may come in between.
  context_.pull_watchdog.LimitTo(
      gate_.get(), context_.access.MakeCheck(caller, request->run_id(),
                                             shard_->run_uid()));
  return context_.access.Check(caller, request->run_id(), shard_->run_uid());
}

template <typename Request>
absl::Status PullStream::Begin(const Request& request) {
  if (request.first_chunk_bytes() > 0) {
    sizer_ = rpc::ChunkSizer(rpc::ChunkSizer::kPullBytesMax,
                             request.first_chunk_bytes());
  }
  fragment_ = request.fragment();
  left_ = shard_->store().range(fragment_).blocks();
  if (request.has_range()) {
    const IndexRange wanted = {request.range().begin(), request.range().end()};
    if (wanted.begin < left_.begin || wanted.end > left_.end ||
        wanted.begin > wanted.end) {
      return Refuse(Code::kInvalidArgument, "INVALID_FIELDS",
                    absl::StrCat("range [", wanted.begin, ", ", wanted.end,
                                 ") is not within this shard's [", left_.begin,
                                 ", ", left_.end,
                                 "); cut the fragment by the layout"));
    }
    left_ = wanted;
  }
  return absl::OkStatus();
}

void PullStream::WriteFirst(const google::protobuf::MessageLite& header) {
  out_ = rpc::EncodeMessage(header);
  StartWrite(&out_);
}

absl::Status PullStream::Load(IndexRange blocks, rpc::ChunkHeader& header,
                              Payload& payload) {
  const ShardRange& range = shard_->store().range(fragment_);
  // Combines the blocks' stored checksums; Read has verified the disk's bytes.
  if (source_.content == v1::PULL_CONTENT_CHAIN) {
    const DeltaFile& delta = *source_.chain[link_];
    const EncodedLayout& layout =
        shard_->store().versions().deltas()->layout(fragment_);
    const char* bytes = delta.Map(blocks, &payload.loan->image);
    if (bytes == nullptr) {
      char* const buffer =
          reinterpret_cast<char*>(payload.Take(context_.buffers));
      RETURN_IF_ERROR(delta.Read(blocks, buffer));
      bytes = buffer;
    }
    payload.bytes = {bytes, static_cast<size_t>(layout.ByteCount(blocks))};
    header.codec = static_cast<int32_t>(layout.codec().id());
    header.crc32c = rpc::ChunkCrc32c(header, {});
    for (int64_t b = blocks.begin; b < blocks.end; ++b) {
      header.crc32c = codec::CombineCrc32c(
          header.crc32c, delta.BlockCrc32c(b),
          static_cast<uint64_t>(layout.ByteCount({b, b + 1})));
    }
    return absl::OkStatus();
  }
  if (source_.kept != nullptr) {
    char* const buffer =
        reinterpret_cast<char*>(payload.Take(context_.buffers));
    RETURN_IF_ERROR(source_.kept->ReadEncoded(blocks, buffer));
    const EncodedRange& encoded = source_.kept->encoded();
    payload.bytes = {buffer, static_cast<size_t>(encoded.ByteCount(blocks))};
    header.codec = static_cast<int32_t>(encoded.codec().id());
    header.crc32c = codec::ExtendCrc32c(rpc::ChunkCrc32c(header, {}),
                                        payload.bytes);
    return absl::OkStatus();
  }
  VersionFile& file = *source_.held.file;
  // Not lent: the next version is made in place in the optimizer's image.
  const float* elements =
      source_.is_state
          ? nullptr
          : file.Map(source_.array, blocks, &payload.loan->image);
  if (elements == nullptr) {
    float* const buffer = payload.Take(context_.buffers);
    RETURN_IF_ERROR(file.Read(source_.array, blocks, buffer));
    elements = buffer;
  }
  payload.bytes = {
      reinterpret_cast<const char*>(elements),
      static_cast<size_t>(range.ElementCount(blocks)) * sizeof(float)};
  header.codec = v1::CODEC_F32;
  header.crc32c = rpc::ChunkCrc32c(header, {});
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    header.crc32c = codec::CombineCrc32c(
        header.crc32c, file.BlockCrc32c(source_.array, b),
        static_cast<uint64_t>(range.ElementCount({b, b + 1})) * sizeof(float));
  }
  return absl::OkStatus();
}

int64_t PullStream::ChunkBlocks() const {
  if (source_.content == v1::PULL_CONTENT_CHAIN) {
    return std::min(
        shard_->store().versions().deltas()->layout(fragment_).chunk_blocks(
            sizer_.bytes()),
        codec::kChunkBlocksUnit);
  }
  int64_t block_bytes = kF32BlockBytes;
  if (source_.kept != nullptr) {
    block_bytes = static_cast<int64_t>(
        source_.kept->encoded().codec().EncodedBytes(codec::kBlockElements));
  }
  return std::max<int64_t>(1, sizer_.bytes() / block_bytes);
}

void PullStream::WriteNext() {
  absl::Status end;
  {
    MutexLock lock(&mutex_);
    end = end_;
  }
  if (left_.empty() || !end.ok()) {
    FinishWith(left_.empty() ? absl::OkStatus() : end);
    return;
  }
  if (link_ == 0) {
    group_end_ = std::min(left_.end, left_.begin + ChunkBlocks());
  }
  const IndexRange blocks = {left_.begin, group_end_};
  rpc::ChunkHeader header;
  header.first_block = blocks.begin;
  header.block_count = static_cast<int32_t>(blocks.size());
  Payload payload;
  const absl::Status loaded = Load(blocks, header, payload);
  if (!loaded.ok()) {
    FinishUnread(loaded);
    return;
  }
  if (++link_ >= source_.chain.size()) {
    link_ = 0;
    left_.begin = blocks.end;
  }
  writing_bytes_ = static_cast<int64_t>(payload.bytes.size());
  writing_codec_ = header.codec;
  out_ =
      rpc::EncodeChunk(header, rpc::BorrowSlice(payload.bytes, Payload::EndLoan,
                                                payload.loan.release()));
  write_begin_ = absl::Now();
  MutexLock lock(&mutex_);
  if (!finished_) StartWrite(&out_);
}

void PullStream::FinishUnread(const absl::Status& read) {
  // `read` names the contribution, and no version depends on it.
  if (!absl::IsDataLoss(read) || source_.kept != nullptr) {
    return FinishWith(read);
  }
  if (source_.content == v1::PULL_CONTENT_CHAIN) {
    shard_->OnDamagedDelta(
        fragment_, source_.from_version + 1 + static_cast<int64_t>(link_),
        read);
    return FinishWith(
        Refuse(Code::kUnavailable, "DELTA_DAMAGED",
               "a delta is damaged; call again to pull the whole replica"));
  }
  FinishWith(shard_->OnDamagedVersion(fragment_, source_.version, read));
}

void PullStream::FinishWith(const absl::Status& status) {
  MutexLock lock(&mutex_);
  if (finished_) return;
  finished_ = true;
  Finish(rpc::ToGrpc(ToDataStatus(status)));
}

void PullStream::OnDisplaced(const absl::Status& status) {
  MutexLock lock(&mutex_);
  if (end_.ok()) end_ = status;
  progress_->ending = true;
}

void PullStream::OnWriteDone(bool ok) {
  if (!ok) {
    FinishWith(absl::CancelledError("the peer is gone"));
    return;
  }
  if (writing_bytes_ > 0) sizer_.Moved(absl::Now() - write_begin_);
  progress_->payload_bytes += writing_bytes_;
  shard_->AddSentBytes(writing_bytes_);
  context_.metrics.AddPulled(writing_codec_, writing_bytes_);
  WriteNext();
}

void PullStream::OnCancel() {
  FinishWith(absl::CancelledError("the call was cancelled"));
}

void PullStream::OnDone() {
  gate_->Close();
  context_.pull_watchdog.Remove(gate_.get());
  delete this;
}

}  // namespace atl::server
