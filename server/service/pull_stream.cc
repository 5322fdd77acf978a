#include "server/service/pull_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/codec/block_grid.h"
#include "base/codec/crc32c.h"
#include "base/rpc/chunk_codec.h"
#include "base/rpc/status.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "server/service/data_status.h"

namespace atl::server {
namespace {

using Code = absl::StatusCode;

constexpr int64_t kBlockBytes =
    codec::kBlockElements * static_cast<int64_t>(sizeof(float));

// Bytes on loan to gRPC: a version's own, or a buffer and where it goes back
// to.
struct Loan {
  VersionImage image;
  std::shared_ptr<BufferPool> pool;
  BufferPool::Buffer buffer;
};

void EndLoan(void* argument) {
  std::unique_ptr<Loan> loan(static_cast<Loan*>(argument));
  if (loan->pool != nullptr) loan->pool->Give(std::move(loan->buffer));
}

}  // namespace

PullStream* PullStream::Start(grpc::CallbackServerContext* call,
                              const grpc::ByteBuffer& request,
                              const ServiceContext& context) {
  PullStream* stream = new PullStream(call, context);
  const absl::Status opened = stream->Open(request);
  if (!opened.ok()) stream->FinishWith(opened);
  return stream;
}

PullStream::PullStream(grpc::CallbackServerContext* call,
                       const ServiceContext& context)
    : call_(call),
      context_(context),
      gate_(std::make_shared<WaiterGate>(this)),
      progress_(std::make_shared<StreamProgress>()) {}

absl::Status PullStream::Open(const grpc::ByteBuffer& bytes) {
  v1::PullParametersRequest request;
  if (!rpc::DecodeMessage(bytes, &request)) {
    return Refuse(Code::kInvalidArgument, "UNREADABLE_MESSAGE",
                  "a message that cannot be parsed");
  }
  shard_ = context_.shards.FindShard(request.run_id());
  if (shard_ == nullptr) {
    return ShardNotHere(request.run_id());
  }
  ASSIGN_OR_RETURN(source_, shard_->OpenPull(request));
  fragment_ = request.fragment();
  left_ = shard_->store().range(fragment_).blocks();
  if (request.has_range()) {
    const IndexRange wanted = {request.range().begin(), request.range().end()};
    if (wanted.begin < left_.begin || wanted.end > left_.end ||
        wanted.begin > wanted.end) {
      return Refuse(Code::kInvalidArgument, "INVALID_FIELDS",
                    absl::StrCat("range [", wanted.begin, ", ", wanted.end,
                                 ") is not within this shard's [", left_.begin,
                                 ", ", left_.end, "); cut by the layout"));
    }
    left_ = wanted;
  }
  if (!context_.pull_watchdog.Add(gate_, progress_)) {
    return RefuseForNow(Code::kResourceExhausted, "TOO_MANY_STREAMS",
                        "too many streams; call again later", absl::Seconds(1));
  }
  v1::PullParametersResponse response;
  v1::PullHeader* header = response.mutable_header();
  header->set_version(source_.version);
  header->set_commit_seq(source_.held.commit_seq);
  header->mutable_range()->set_begin(left_.begin);
  header->mutable_range()->set_end(left_.end);
  header->set_codec(v1::CODEC_F32);
  *header->mutable_digest() = source_.held.digest.ToProto();
  out_ = rpc::EncodeMessage(response);
  StartWrite(&out_);
  return absl::OkStatus();
}

void PullStream::WriteNext() {
  if (left_.empty()) {
    FinishWith(absl::OkStatus());
    return;
  }
  const int64_t block_count =
      std::max<int64_t>(1, sizer_.bytes() / kBlockBytes);
  const IndexRange blocks = {left_.begin,
                             std::min(left_.end, left_.begin + block_count)};
  auto loan = std::make_unique<Loan>();
  const float* elements = source_.held.file->Map(0, blocks, &loan->image);
  if (elements == nullptr) {
    loan->pool = context_.buffers;
    loan->buffer = context_.buffers->Take();
    elements = loan->buffer.get();
    const absl::Status read =
        source_.held.file->Read(0, blocks, loan->buffer.get());
    if (!read.ok()) {
      EndLoan(loan.release());
      FinishUnread(read);
      return;
    }
  }
  const absl::string_view payload(
      reinterpret_cast<const char*>(elements),
      static_cast<size_t>(
          shard_->store().range(fragment_).ElementCount(blocks)) *
          sizeof(float));
  rpc::ChunkHeader header;
  header.codec = v1::CODEC_F32;
  header.first_block = blocks.begin;
  header.block_count = static_cast<int32_t>(blocks.size());
  // The chunk's checksum is put together from the blocks', which were computed
  // when they were made; Read has checked what came from the disk.
  const ShardRange& range = shard_->store().range(fragment_);
  header.crc32c = rpc::ChunkCrc32c(header, {});
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    header.crc32c = codec::CombineCrc32c(
        header.crc32c, source_.held.file->ThetaCrc32c(b),
        static_cast<uint64_t>(range.ElementCount({b, b + 1})) * sizeof(float));
  }
  left_.begin = blocks.end;
  writing_bytes_ = static_cast<int64_t>(payload.size());
  out_ = rpc::EncodeChunk(header,
                          rpc::BorrowSlice(payload, EndLoan, loan.release()));
  write_begin_ = absl::Now();
  MutexLock lock(&mutex_);
  if (!finished_) StartWrite(&out_);
}

void PullStream::FinishUnread(const absl::Status& read) {
  if (!absl::IsDataLoss(read)) return FinishWith(read);
  shard_->OnDamagedVersion(fragment_, source_.version, read);
  FinishWith(absl::DataLossError(absl::StrCat(
      read.message(), "; ask for the newest version or another checkpoint")));
}

void PullStream::FinishWith(const absl::Status& status) {
  MutexLock lock(&mutex_);
  if (finished_) return;
  finished_ = true;
  Finish(rpc::ToGrpc(ToDataStatus(status)));
}

void PullStream::OnWriteDone(bool ok) {
  if (!ok) {
    FinishWith(absl::CancelledError("the peer is gone"));
    return;
  }
  if (writing_bytes_ > 0) sizer_.Moved(absl::Now() - write_begin_);
  progress_->payload_bytes += writing_bytes_;
  shard_->AddSentBytes(writing_bytes_);
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
