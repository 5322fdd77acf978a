// One PullParameters or PullKept stream: a header, then the blocks of a version,
// of the D that lead to it, or of a kept contribution, as the peer takes them:
// lent from memory, or read from the file.
//
// Lives until gRPC is done with it, then deletes itself.

#ifndef SERVER_SERVICE_PULL_STREAM_H_
#define SERVER_SERVICE_PULL_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "atoll/v1/parameter_service.pb.h"
#include "base/rpc/chunk_codec.h"
#include "base/rpc/chunk_sizer.h"
#include "base/sync/mutex.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/service/service_context.h"

namespace atl::server {

class PullStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                         public PushWaiter {
 public:
  static PullStream* Start(grpc::CallbackServerContext* call,
                           const grpc::ByteBuffer& request,
                           const ServiceContext& context);
  static PullStream* StartKept(grpc::CallbackServerContext* call,
                               const grpc::ByteBuffer& request,
                               const ServiceContext& context);

  // Waits for nothing but its own writes.
  void OnSettled(const absl::Status& status) override { FinishWith(status); }
  // A write is always under way, which the peer does not take: no status can
  // follow it.
  void OnTooSlow(const absl::Status& /*status*/) override {
    call_->TryCancel();
  }
  // Once the write that is under way is over.
  void OnDisplaced(const absl::Status& status) override;

 private:
  PullStream(grpc::CallbackServerContext* call, const ServiceContext& context);

  struct Payload;

  // A stream that `open` has begun, or ended.
  static PullStream* StartWith(
      absl::Status (PullStream::*open)(const grpc::ByteBuffer&),
      grpc::CallbackServerContext* call, const grpc::ByteBuffer& request,
      const ServiceContext& context);
  absl::Status Open(const grpc::ByteBuffer& request);
  absl::Status OpenKept(const grpc::ByteBuffer& request);
  // Of either: parses it and finds its shard.
  template <typename Request>
  absl::Status ReadRequest(const grpc::ByteBuffer& bytes, Request* request);
  // Of either: what of the shard's blocks is wanted.
  template <typename Request>
  absl::Status Begin(const Request& request);
  Reader reader() const { return {caller_, gate_}; }
  void WriteFirst(const google::protobuf::MessageLite& header);
  // The bytes of `blocks` of the version, or of the next D of the chain, lent
  // or read; fills in the codec and the checksum.
  absl::Status Load(IndexRange blocks, rpc::ChunkHeader& header,
                    Payload& payload);
  // Blocks of the next chunk.
  int64_t ChunkBlocks() const;
  // Reads the next chunk and writes it, or ends the stream.
  void WriteNext();
  void FinishWith(const absl::Status& status);
  // Ends because version or D could not be read: says so to the shard too.
  void FinishUnread(const absl::Status& read);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  grpc::CallbackServerContext* const call_;
  const ServiceContext& context_;
  const std::string caller_;
  const std::shared_ptr<WaiterGate> gate_;
  const std::shared_ptr<StreamProgress> progress_;
  Shard* shard_ = nullptr;
  Shard::PullSource source_;
  int32_t fragment_ = 0;
  IndexRange left_;  // Blocks that are not written yet.
  int64_t group_end_ = 0;  // Where the chunks end that begin at left_.begin.
  size_t link_ = 0;  // Of a chain: D's that were written of the first of these.
  int64_t writing_bytes_ = 0;
  absl::Time write_begin_;
  rpc::ChunkSizer sizer_{rpc::ChunkSizer::kPullBytesMax};
  grpc::ByteBuffer out_;

  Mutex mutex_;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);  // Instead of the next chunk.
};

}  // namespace atl::server

#endif  // SERVER_SERVICE_PULL_STREAM_H_
