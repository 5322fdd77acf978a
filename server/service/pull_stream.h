// One PullParameters or PullKept stream: a header, then blocks of a version, of
// a chain of deltas, or of a kept contribution. Blocks are lent from memory or
// read from files. Deletes itself when gRPC is done with it.

#pragma once

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

  // Waits only for its own writes.
  void OnSettled(const absl::Status& status) override { FinishWith(status); }
  // The pending write, which the peer does not take, blocks any status.
  void OnTooSlow(const absl::Status& /*status*/) override {
    call_->TryCancel();
  }
  // Ends after the current write.
  void OnDisplaced(const absl::Status& status) override;

 private:
  PullStream(grpc::CallbackServerContext* call, const ServiceContext& context);

  struct Payload;

  // A new stream that `open` has started, or ended with its error.
  static PullStream* StartWith(
      absl::Status (PullStream::*open)(const grpc::ByteBuffer&),
      grpc::CallbackServerContext* call, const grpc::ByteBuffer& request,
      const ServiceContext& context);
  absl::Status Open(const grpc::ByteBuffer& request);
  absl::Status OpenKept(const grpc::ByteBuffer& request);
  template <typename Request>
  absl::Status ReadRequest(const grpc::ByteBuffer& bytes, Request* request);
  template <typename Request>
  absl::Status Begin(const Request& request);
  Reader reader() const { return {caller_, gate_}; }
  void WriteFirst(const google::protobuf::MessageLite& header);
  // Lends or reads `blocks` of the version or of the chain's next delta; sets
  // the codec and the checksum.
  absl::Status Load(IndexRange blocks, rpc::ChunkHeader& header,
                    Payload& payload);
  int64_t ChunkBlocks() const;
  void WriteNext();
  void FinishWith(const absl::Status& status);
  // Ends after a failed read, and reports damage to the shard.
  void FinishUnread(const absl::Status& read);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  grpc::CallbackServerContext* const call_;
  const ServiceContext& context_;
  const std::string caller_;
  const std::shared_ptr<WaiterGate> gate_;
  const std::shared_ptr<StreamProgress> progress_;
  std::shared_ptr<Shard> shard_;
  Shard::PullSource source_;  // Refers to shard_, so it is destroyed first.
  int32_t fragment_ = 0;
  IndexRange left_;  // Blocks not yet written.
  int64_t group_end_ = 0;  // End of the chunks that begin at left_.begin.
  size_t link_ = 0;  // Deltas already written for these blocks.
  int64_t writing_bytes_ = 0;
  int32_t writing_codec_ = v1::CODEC_F32;
  absl::Time write_begin_;
  rpc::ChunkSizer sizer_{rpc::ChunkSizer::kPullBytesMax};
  grpc::ByteBuffer out_;

  Mutex mutex_;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);  // Ends instead of the next chunk.
};

}  // namespace atl::server
