// gRPC calls, streams and timers on one thread, for thousands of islands.
//
// All callbacks run within Run, one after the other. No callback runs after the
// loop is destroyed.
//
// Thread-compatible.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/rpc/call.h"
#include "base/rpc/status.h"
#include "google/protobuf/message.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/support/async_unary_call.h"
#include "grpcpp/support/byte_buffer.h"

namespace atl::benchmarks {

class CallLoop {
 public:
  // A call or a stream that is under way.
  class Operation {
   public:
    Operation() = default;
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;
    virtual ~Operation() = default;
    // Takes the completion of a step. True: that was the last one.
    virtual bool Take(bool ok) = 0;
    // Ends it without further callbacks.
    virtual void Cancel() = 0;
    // Of its steps in the completion queue.
    void* tag() { return this; }
  };
  using Stream = Operation;

  struct StreamEvents {
    // Takes one message.
    std::function<void(grpc::ByteBuffer& message)> on_message;
    // The stream has ended; its handle is invalid.
    std::function<void(const absl::Status& status)> on_end;
  };

  CallLoop() = default;
  // Cancels what is under way.
  ~CallLoop();
  CallLoop(const CallLoop&) = delete;
  CallLoop& operator=(const CallLoop&) = delete;

  // Runs `action` at `time`.
  void At(absl::Time time, std::function<void()> action) {
    timers_.emplace(time, std::move(action));
  }

  // Runs until `is_done` is true. False: it is `deadline`.
  bool Run(const std::function<bool()>& is_done, absl::Time deadline);
  // Runs until `time`.
  void RunUntil(absl::Time time) {
    Run([] { return false; }, time);
  }

  // Calls `method` (&v1::IslandService::Stub::AsyncHeartbeat). `on_done` gets
  // the answer and the time that it took.
  template <typename Stub, typename Request, typename Response>
  void Call(const std::shared_ptr<grpc::Channel>& channel,
            std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> (
                Stub::*method)(grpc::ClientContext*, const Request&,
                               grpc::CompletionQueue*),
            const Request& request, absl::Duration timeout,
            const std::string& session,
            std::function<void(const absl::Status&, Response&, absl::Duration)>
                on_done) {
    Unary<Response>& call = Hold(std::make_unique<Unary<Response>>());
    call.on_done = std::move(on_done);
    rpc::Prepare({.timeout = timeout, .session = session}, call.context);
    Stub stub(channel);
    call.reader = (stub.*method)(&call.context, request, &queue_);
    call.reader->Finish(&call.response, &call.status, call.tag());
  }

  // Opens a stream of answers to one request; `method` is
  // "/atoll.v1.IslandService/WatchPlan". The handle is valid until on_end.
  Stream* Open(const std::shared_ptr<grpc::Channel>& channel,
               const std::string& method,
               const google::protobuf::Message& request,
               const std::string& session, StreamEvents events);

  // Connects `channel`. `on_done` gets whether it did within `timeout`.
  void Connect(std::shared_ptr<grpc::Channel> channel, absl::Duration timeout,
               std::function<void(bool connected)> on_done);

 private:
  template <typename Response>
  struct Unary : Operation {
    bool Take(bool /*ok*/) override {
      if (on_done) {
        on_done(rpc::FromGrpc(status), response, absl::Now() - begin);
      }
      return true;
    }
    void Cancel() override {
      on_done = nullptr;
      context.TryCancel();
    }

    const absl::Time begin = absl::Now();
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> reader;
    Response response;
    grpc::Status status;
    std::function<void(const absl::Status&, Response&, absl::Duration)> on_done;
  };
  class ByteStream;
  class Connecting;

  template <typename T>
  T& Hold(std::unique_ptr<T> operation) {
    T& held = *operation;
    operations_[&held] = std::move(operation);
    return held;
  }
  void Complete(void* tag, bool ok);

  grpc::CompletionQueue queue_;
  absl::flat_hash_map<Operation*, std::unique_ptr<Operation>> operations_;
  std::multimap<absl::Time, std::function<void()>> timers_;
};

// Reads a message. INVALID_ARGUMENT: it is malformed.
absl::Status ParseMessage(grpc::ByteBuffer& bytes,
                          google::protobuf::Message& message);

}  // namespace atl::benchmarks
