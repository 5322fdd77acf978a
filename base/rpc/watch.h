// Keeps a server stream of whole states open, and returns the newest state.
//
// A receiver that missed states needs only the last one (level, not edge). So a
// Watch reads as fast as messages arrive, keeps only one, and reopens the
// stream with backoff whenever it breaks.
//
//   Watch<v1::WatchPlanResponse> watch(options, [&](grpc::ClientContext* c) {
//     return stub->WatchPlan(c, request);
//   });
//   ASSIGN_OR_RETURN(auto newest, watch.Next(is_news, deadline, stop));

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/rpc/retry.h"
#include "base/rpc/status.h"
#include "base/sync/mutex.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/sync_stream.h"

namespace atl::rpc {

struct WatchOptions {
  RetryPolicy retry;
  uint64_t seed = RandomSeed();  // For the backoff's jitter.
};

// True if reopening a stream that ended with `status` is useless: it ended with
// OK, or the peer refuses the caller. False if the peer is unreachable, or
// refuses for now (IsLogFault).
bool IsFinal(const absl::Status& status);

// Thread-safe.
template <typename Message>
class Watch {
 public:
  // Opens the stream on a context owned by the Watch.
  using Open =
      std::function<std::unique_ptr<grpc::ClientReaderInterface<Message>>(
          grpc::ClientContext*)>;

  // True if `came` is older than `held` and must not replace it. Relays and
  // outdated peers send such messages.
  using IsOlder = std::function<bool(const Message& came, const Message& held)>;

  Watch(const WatchOptions& options, Open open, IsOlder is_older = nullptr)
      : options_(options),
        open_(std::move(open)),
        is_older_(std::move(is_older)),
        thread_([this](std::stop_token stop) { Run(stop); }) {}

  ~Watch() {
    thread_.request_stop();
    MutexLock lock(&mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }

  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // True if the caller does not have `message` yet.
  using IsNews = std::function<bool(const Message& message)>;

  // Waits until the newest message is news, and returns it.
  // DEADLINE_EXCEEDED: none arrived in time.
  // CANCELLED: `stop` was requested.
  // OUT_OF_RANGE: the peer has ended the stream; no further messages.
  // Otherwise the peer's final error.
  absl::StatusOr<Message> Next(const IsNews& is_news, absl::Time deadline,
                               std::stop_token stop = {}) {
    const std::stop_callback wake(stop, [this] { WakeAll(); });
    MutexLock lock(&mutex_);
    const auto has_news = [&] {
      mutex_.AssertHeld();
      return newest_.has_value() && is_news(*newest_);
    };
    changed_.AwaitWithTimeout(&mutex_, deadline - absl::Now(), [&] {
      mutex_.AssertHeld();
      return has_news() || end_.has_value() || stop.stop_requested();
    });
    if (has_news()) return *newest_;
    if (end_.has_value()) {
      if (end_->ok()) return absl::OutOfRangeError("the stream has ended");
      return *end_;
    }
    if (stop.stop_requested()) return absl::CancelledError("stopped");
    return absl::DeadlineExceededError("nothing new");
  }

 private:
  void WakeAll() {
    MutexLock lock(&mutex_);
    changed_.SignalAll();
  }

  void Run(std::stop_token stop) {
    const std::stop_callback wake(stop, [this] { WakeAll(); });
    Backoff backoff(options_.retry, options_.seed);
    while (!stop.stop_requested()) {
      const absl::Status status = ReadStream(stop, backoff);
      MutexLock lock(&mutex_);
      if (stop.stop_requested()) return;
      if (IsFinal(status)) {
        end_ = status;
        changed_.SignalAll();
        return;
      }
      changed_.AwaitWithTimeout(&mutex_, backoff.Next(status),
                                [&] { return stop.stop_requested(); });
    }
  }

  absl::Status ReadStream(const std::stop_token& stop, Backoff& backoff) {
    grpc::ClientContext context;
    {
      MutexLock lock(&mutex_);
      if (stop.stop_requested()) return absl::CancelledError("stopped");
      context_ = &context;
    }
    const auto reader = open_(&context);
    Message message;
    while (reader->Read(&message)) {
      backoff.Reset();
      MutexLock lock(&mutex_);
      if (is_older_ == nullptr || !newest_.has_value() ||
          !is_older_(message, *newest_)) {
        newest_ = std::move(message);
      }
      message = Message();
      changed_.SignalAll();
    }
    const grpc::Status status = reader->Finish();
    MutexLock lock(&mutex_);
    context_ = nullptr;
    return FromGrpc(status);
  }

  const WatchOptions options_;
  const Open open_;
  const IsOlder is_older_;
  Mutex mutex_;
  CondVar changed_;
  // The context of the open stream.
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::optional<Message> newest_ ABSL_GUARDED_BY(mutex_);
  // Why the stream ended for good.
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  // Last, because it uses all of the above.
  std::jthread thread_;
};

}  // namespace atl::rpc
