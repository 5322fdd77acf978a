// A bidirectional call of raw messages, seen from the client, whose reactions
// run on threads of bulk calls' own: one up to seven cores.
//
// It is used as grpc::ClientBidiReactor is, whose reactions run on two threads or
// more that hand the polling to each other at every event; DESIGN.md has what
// that costs. One read and one write may be under way at a time; each may be
// started from any thread. A reaction must not wait for another call's.

#ifndef BASE_RPC_BULK_CALL_H_
#define BASE_RPC_BULK_CALL_H_

#include <atomic>
#include <memory>
#include <string>

#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"

namespace atl::rpc {

class BulkCall {
 public:
  BulkCall(const BulkCall&) = delete;
  BulkCall& operator=(const BulkCall&) = delete;

 protected:
  // `method` as "/atoll.v1.ParameterService/...".
  BulkCall(const std::shared_ptr<grpc::Channel>& channel, std::string method);
  virtual ~BulkCall() = default;

  // For metadata, before Begin, and for TryCancel at any time.
  grpc::ClientContext& context() { return context_; }

  // Sends the first message, which is also the `last` or not, and begins to read
  // into `answer`: OnReadDone says when it is there. Once.
  void Begin(const grpc::ByteBuffer* first, bool last,
             grpc::ByteBuffer* answer);
  // What is read into, or written, must stay until the reaction to it.
  void StartRead(grpc::ByteBuffer* message);
  void StartWrite(const grpc::ByteBuffer* message);
  // We send no more. After the last write.
  void StartWritesDone();
  // OnDone waits for as many RemoveHold as there were AddHold. Requires: OnDone
  // cannot be due, as in a reaction.
  void AddHold() { ++pending_count_; }
  void RemoveHold();

  // `ok` is false if no message will come any more; then or after any read that
  // was the last one started, OnDone follows.
  virtual void OnReadDone(bool ok) = 0;
  // `ok` is false if nothing can be written any more.
  virtual void OnWriteDone(bool /*ok*/) {}
  // The call has ended and nothing of it is under way: the last reaction. It may
  // delete this object.
  virtual void OnDone(const grpc::Status& status) = 0;

 private:
  friend class BulkThreads;
  enum Operation { kRead, kWrite, kClose, kFinish, kOperationCount };
  // What the completion queue knows an operation by.
  struct Tag {
    BulkCall* call;
    Operation operation;
  };

  void React(Operation operation, bool ok);

  grpc::GenericStub stub_;
  const std::string method_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  Tag tags_[kOperationCount];
  std::atomic<int> pending_count_{0};  // Operations under way, and holds.
  bool has_read_ = false;              // Reads follow each other.
  grpc::Status status_;
};

}  // namespace atl::rpc

#endif  // BASE_RPC_BULK_CALL_H_
