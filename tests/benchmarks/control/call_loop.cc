#include "tests/benchmarks/control/call_loop.h"

#include <algorithm>
#include <chrono>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "grpcpp/support/slice.h"

namespace atl::benchmarks {

// One step is under way at a time, so one tag does for all.
class CallLoop::ByteStream : public CallLoop::Operation {
 public:
  ByteStream(CallLoop& loop, const std::shared_ptr<grpc::Channel>& channel,
             const std::string& method,
             const google::protobuf::Message& request,
             const std::string& session, StreamEvents events)
      : stub_(channel), events_(std::move(events)) {
    if (!session.empty()) {
      context_.AddMetadata(rpc::kSessionMetadata, session);
    }
    const grpc::Slice slice(request.SerializeAsString());
    request_ = grpc::ByteBuffer(&slice, 1);
    stream_ = stub_.PrepareCall(&context_, method, &loop.queue_);
  }

  void Start() { stream_->StartCall(tag()); }

  bool Take(bool ok) override {
    if (state_ == State::kEnd) {
      if (events_.on_end) events_.on_end(rpc::FromGrpc(status_));
      return true;
    }
    if (!ok) {
      state_ = State::kEnd;
      stream_->Finish(&status_, tag());
      return false;
    }
    if (state_ == State::kStart) {
      state_ = State::kWrite;
      stream_->WriteLast(request_, grpc::WriteOptions(), tag());
      return false;
    }
    if (state_ == State::kRead && events_.on_message) {
      events_.on_message(message_);
    }
    state_ = State::kRead;
    message_.Clear();
    stream_->Read(&message_, tag());
    return false;
  }

  void Cancel() override {
    events_ = {};
    context_.TryCancel();
  }

 private:
  enum class State { kStart, kWrite, kRead, kEnd };

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  StreamEvents events_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer message_;
  grpc::Status status_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  State state_ = State::kStart;
};

class CallLoop::Connecting : public CallLoop::Operation {
 public:
  Connecting(CallLoop& loop, std::shared_ptr<grpc::Channel> channel,
             absl::Duration timeout, std::function<void(bool)> on_done)
      : loop_(loop),
        channel_(std::move(channel)),
        deadline_(absl::ToChronoTime(absl::Now() + timeout)),
        on_done_(std::move(on_done)) {}

  void Start() {
    channel_->NotifyOnStateChange(channel_->GetState(true), deadline_,
                                  &loop_.queue_, tag());
  }

  bool Take(bool ok) override {
    if (!on_done_) return true;
    const bool connected = channel_->GetState(false) == GRPC_CHANNEL_READY;
    if (ok && !connected) {
      Start();
      return false;
    }
    on_done_(connected);
    return true;
  }

  void Cancel() override { on_done_ = nullptr; }

 private:
  CallLoop& loop_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::chrono::system_clock::time_point deadline_;
  std::function<void(bool)> on_done_;
};

CallLoop::~CallLoop() {
  for (const auto& [operation, held] : operations_) operation->Cancel();
  void* tag = nullptr;
  bool ok = false;
  while (!operations_.empty() && queue_.Next(&tag, &ok)) Complete(tag, ok);
  queue_.Shutdown();
  while (queue_.Next(&tag, &ok)) {
  }
}

void CallLoop::Complete(void* tag, bool ok) {
  auto* operation = static_cast<Operation*>(tag);
  if (operation->Take(ok)) operations_.erase(operation);
}

bool CallLoop::Run(const std::function<bool()>& is_done, absl::Time deadline) {
  while (!is_done()) {
    const absl::Time now = absl::Now();
    if (now >= deadline) return false;
    if (!timers_.empty() && timers_.begin()->first <= now) {
      const auto action = std::move(timers_.extract(timers_.begin()).mapped());
      action();
    }
    // Completions have their turn also while timers are due.
    const absl::Time wake =
        timers_.empty() ? deadline : std::min(deadline, timers_.begin()->first);
    void* tag = nullptr;
    bool ok = false;
    if (queue_.AsyncNext(&tag, &ok, absl::ToChronoTime(wake)) ==
        grpc::CompletionQueue::GOT_EVENT) {
      Complete(tag, ok);
    }
  }
  return true;
}

CallLoop::Stream* CallLoop::Open(const std::shared_ptr<grpc::Channel>& channel,
                                 const std::string& method,
                                 const google::protobuf::Message& request,
                                 const std::string& session,
                                 StreamEvents events) {
  ByteStream& stream = Hold(std::make_unique<ByteStream>(
      *this, channel, method, request, session, std::move(events)));
  stream.Start();
  return &stream;
}

void CallLoop::Connect(std::shared_ptr<grpc::Channel> channel,
                       absl::Duration timeout,
                       std::function<void(bool connected)> on_done) {
  Hold(std::make_unique<Connecting>(*this, std::move(channel), timeout,
                                    std::move(on_done)))
      .Start();
}

absl::Status ParseMessage(grpc::ByteBuffer& bytes,
                          google::protobuf::Message& message) {
  grpc::ProtoBufferReader reader(&bytes);
  if (!message.ParseFromZeroCopyStream(&reader)) {
    return absl::InvalidArgumentError("a message of a stream is malformed");
  }
  return absl::OkStatus();
}

}  // namespace atl::benchmarks
