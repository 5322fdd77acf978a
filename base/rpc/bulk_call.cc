#include "base/rpc/bulk_call.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "grpcpp/completion_queue.h"
#include "grpcpp/support/async_stream.h"

namespace atl::rpc {
namespace {

// A thread moves some 4 GB/s, checksums included; more of them hand the polling
// to each other.
constexpr unsigned kCoresPerThread = 4;
constexpr unsigned kThreadsMax = 8;

}  // namespace

// The threads of all bulk calls of a process. Never stopped, as gRPC's library is
// not.
class BulkThreads {
 public:
  static BulkThreads& Get() {
    static BulkThreads* const threads = new BulkThreads;
    return *threads;
  }

  grpc::CompletionQueue& queue() { return queue_; }

 private:
  BulkThreads() {
    const unsigned count =
        std::clamp(std::thread::hardware_concurrency() / kCoresPerThread, 1u,
                   kThreadsMax);
    for (unsigned i = 0; i < count; ++i) {
      std::thread([this] { Run(); }).detach();
    }
  }

  void Run() {
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
      const auto* const of = static_cast<const BulkCall::Tag*>(tag);
      of->call->React(of->operation, ok);
    }
  }

  grpc::CompletionQueue queue_;
};

BulkCall::BulkCall(const std::shared_ptr<grpc::Channel>& channel,
                   std::string method)
    : stub_(channel), method_(std::move(method)) {
  for (int i = 0; i < kOperationCount; ++i) {
    tags_[i] = {this, static_cast<Operation>(i)};
  }
}

void BulkCall::Begin(const grpc::ByteBuffer* first, bool last,
                     grpc::ByteBuffer* answer) {
  // The call's metadata goes out with the first message, and has no reaction.
  context_.set_initial_metadata_corked(true);
  stream_ = stub_.PrepareCall(&context_, method_, &BulkThreads::Get().queue());
  stream_->StartCall(nullptr);
  AddHold();  // The first reaction may come before this has returned.
  ++pending_count_;
  if (last) {
    stream_->WriteLast(*first, grpc::WriteOptions(), &tags_[kWrite]);
  } else {
    stream_->Write(*first, &tags_[kWrite]);
  }
  StartRead(answer);
  RemoveHold();
}

void BulkCall::StartRead(grpc::ByteBuffer* message) {
  ++pending_count_;
  stream_->Read(message, &tags_[kRead]);
}

void BulkCall::StartWrite(const grpc::ByteBuffer* message) {
  ++pending_count_;
  stream_->Write(*message, &tags_[kWrite]);
}

void BulkCall::StartWritesDone() {
  ++pending_count_;
  stream_->WritesDone(&tags_[kClose]);
}

void BulkCall::RemoveHold() {
  if (--pending_count_ == 0) OnDone(status_);
}

void BulkCall::React(Operation operation, bool ok) {
  if (operation == kRead) {
    // The status can be asked for once the server's metadata has been.
    if (!has_read_) {
      has_read_ = true;
      ++pending_count_;
      stream_->Finish(&status_, &tags_[kFinish]);
    }
    OnReadDone(ok);
  } else if (operation == kWrite) {
    OnWriteDone(ok);
  }
  RemoveHold();
}

}  // namespace atl::rpc
