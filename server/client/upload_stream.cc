#include "server/client/upload_stream.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "atoll/v1/parameter_service.pb.h"
#include "base/rpc/call.h"
#include "base/rpc/status.h"
#include "base/status/refusal.h"
#include "base/sync/mutex.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "server/client/delay.h"

namespace atl::server {
namespace {

// Under a cap chunks are small, so that bursts are short.
constexpr absl::Duration kCappedChunkSpan = absl::Milliseconds(25);

// ImportParametersResponse has the same fields with the same numbers.
using Answer = v1::PushOuterGradientResponse;

// True if smaller chunks might have helped. An error with a reason of the
// server's (no memory, set changed) says nothing about the link.
bool IsOfLink(const absl::Status& status) {
  return absl::IsDeadlineExceeded(status) ||
         !GetReason(status).has_value();
}

// The ranges of `answer`, checked against the shard's blocks.
absl::StatusOr<std::vector<IndexRange>> MissingRanges(const Answer& answer,
                                                      IndexRange blocks) {
  std::vector<IndexRange> ranges;
  int64_t after = blocks.begin;
  for (const v1::BlockRange& range : answer.missing()) {
    if (range.begin() < after || range.begin() >= range.end() ||
        range.end() > blocks.end) {
      return absl::InternalError(
          absl::StrCat("the server misses blocks [", range.begin(), ", ",
                       range.end(), "), which do not fit its range [",
                       blocks.begin, ", ", blocks.end, ")"));
    }
    ranges.push_back({range.begin(), range.end()});
    after = range.end();
  }
  return ranges;
}

// The intersection of two ascending lists, ascending.
std::vector<IndexRange> Common(absl::Span<const IndexRange> a,
                               absl::Span<const IndexRange> b) {
  std::vector<IndexRange> common;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const IndexRange both = {std::max(a[i].begin, b[j].begin),
                             std::min(a[i].end, b[j].end)};
    if (!both.empty()) common.push_back(both);
    a[i].end < b[j].end ? ++i : ++j;
  }
  return common;
}

class PushCall
    : public BulkStream,
      public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  PushCall(const std::shared_ptr<grpc::Channel>& channel, Upload upload,
           StreamEvents& events)
      : stub_(channel), upload_(std::move(upload)), events_(events) {
    if (!upload_.session.empty()) {
      context_.AddMetadata(rpc::kSessionMetadata, upload_.session);
    }
    stub_.PrepareBidiStreamingCall(&context_, upload_.method, {}, this);
  }

  void Start() override {
    asked_ = upload_.ledger->Asked();
    begin_ = absl::Now();
    StartRead(&answer_);
    StartWrite(&upload_.header);
    StartCall();
  }

  void Cancel() override {
    cancelled_ = true;
    context_.TryCancel();
    delay_.Hurry();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      delay_.Hurry();
      return;
    }
    events_.Moved(0);
    Answer answer;
    if (!rpc::DecodeMessage(answer_, &answer)) {
      Fail(absl::InternalError("the server's answer cannot be parsed"));
      return;
    }
    bool start = false;
    {
      MutexLock lock(&mutex_);
      if (!answered_) round_trip_ = absl::Now() - begin_;
      if (answer.stored()) {
        stored_ = true;
        upload_.ledger->Stored();
      }
      if (!answered_ && !stored_) {
        auto missing = MissingRanges(answer, upload_.blocks);
        if (!missing.ok()) {
          FailLocked(missing.status());
          return;
        }
        const std::vector<IndexRange> ours =
            Common(*missing, upload_.layout->held());
        if (upload_.ledger->Answered(asked_, ours)) events_.Advanced();
      }
      start = !answered_ && header_written_ && !upload_.at_once;
      answered_ = true;
    }
    StartRead(&answer_);
    if (start) WriteNext();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) {  // The stream is ending; OnDone gets the status.
      upload_.pacer->GiveBack(writing_bytes_);
      return;
    }
    events_.Moved(writing_bytes_);
    {
      MutexLock lock(&mutex_);
      if (!header_written_) {
        header_written_ = true;
        if (!answered_ && !upload_.at_once) return;
      }
    }
    WriteNext();
  }

  void OnDone(const grpc::Status& grpc_status) override {
    absl::Status status =
        rpc::NamePeer(rpc::FromGrpc(grpc_status), upload_.peer);
    {
      MutexLock lock(&mutex_);
      if (!failure_.ok()) {
        status = failure_;
      } else if (status.ok() && !stored_) {
        status = absl::UnavailableError(
            "the server ended the stream before everything was stored");
      }
    }
    // Unwritten chunks must be returned before the tracker's owner may go.
    prepared_.reset();
    writing_.Clear();
    if (!status.ok()) {
      if (!cancelled_ && IsOfLink(status)) upload_.sizer->Failed();
      upload_.ledger->Broke(upload_.index);
    }
    events_.Done(status);
  }

 private:
  struct Prepared {
    grpc::ByteBuffer message;
    int64_t payload_bytes = 0;
  };

  void Fail(const absl::Status& status) {
    MutexLock lock(&mutex_);
    FailLocked(status);
  }

  // Requires: mutex_ is held.
  void FailLocked(const absl::Status& status) {
    if (failure_.ok()) failure_ = status;
    context_.TryCancel();
  }

  std::pair<bool, absl::Duration> StoredAndRoundTrip() {
    MutexLock lock(&mutex_);
    return {stored_, round_trip_};
  }

  // Writes the next chunk, or closes our side after the last; prepares the one
  // after it meanwhile (mostly its checksum). The lock is for the write's
  // reaction, which may run before this returns.
  void WriteNext() {
    const auto [stored, round_trip] = StoredAndRoundTrip();
    MutexLock lock(&write_mutex_);
    if (writing_bytes_ > 0) {
      upload_.sizer->Moved(absl::Now() - write_begin_, round_trip);
    }
    if (stored) {
      prepared_.reset();
    } else if (!prepared_.has_value()) {
      prepared_ = PrepareNext();
    }
    if (!prepared_.has_value()) {
      writing_bytes_ = 0;
      if (!closed_) StartWritesDone();
      closed_ = true;
      return;
    }
    writing_ = std::move(prepared_->message);
    writing_bytes_ = prepared_->payload_bytes;
    const absl::Duration wait = upload_.pacer->Take(writing_bytes_);
    if (wait > absl::ZeroDuration()) {
      AddHold();
      delay_.Start(wait, [this] {
        Write();
        RemoveHold();
      });
    } else {
      Write();
    }
    prepared_ = PrepareNext();
  }

  void Write() {
    write_begin_ = absl::Now();
    StartWrite(&writing_);
  }

  int64_t ChunkBlocksMax() const {
    return upload_.layout->chunk_blocks(std::min(
        upload_.sizer->bytes(),
        upload_.pacer->BytesIn(kCappedChunkSpan, 0, upload_.chunk_bytes_max)));
  }

  // The next due chunk. Requires: write_mutex_ is held.
  std::optional<Prepared> PrepareNext() {
    const IndexRange blocks =
        upload_.ledger->Next(upload_.index, ChunkBlocksMax());
    if (blocks.empty()) return std::nullopt;
    const absl::string_view payload(
        upload_.encoded.data() + upload_.layout->ByteOffset(blocks.begin),
        static_cast<size_t>(upload_.layout->ByteCount(blocks)));
    rpc::ChunkHeader header = upload_.chunk;
    header.first_block = blocks.begin;
    header.block_count = static_cast<int32_t>(blocks.size());
    header.crc32c = rpc::ChunkCrc32c(header, {payload});
    return Prepared{rpc::EncodeChunk(header, upload_.tracker->Lend(payload)),
                    static_cast<int64_t>(payload.size())};
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  Upload upload_;
  StreamEvents& events_;
  int64_t asked_ = 0;  // The ledger's moment when the header was sent.
  absl::Time begin_;   // When the header was sent.
  std::atomic<bool> cancelled_{false};

  grpc::ByteBuffer answer_;

  // Guards the members up to `delay_`.
  Mutex write_mutex_;
  std::optional<Prepared> prepared_;
  grpc::ByteBuffer writing_;
  std::atomic<int64_t> writing_bytes_{0};
  absl::Time write_begin_;
  bool closed_ = false;
  Delay delay_;

  Mutex mutex_;
  bool header_written_ ABSL_GUARDED_BY(mutex_) = false;
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  bool stored_ ABSL_GUARDED_BY(mutex_) = false;
  // From the header to its answer; 0 before.
  absl::Duration round_trip_ ABSL_GUARDED_BY(mutex_);
  // Found here; replaces the call's status.
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<BulkStream> MakeUploadStream(
    const std::shared_ptr<grpc::Channel>& channel, Upload upload,
    StreamEvents& events) {
  return std::make_unique<PushCall>(channel, std::move(upload), events);
}

}  // namespace atl::server
