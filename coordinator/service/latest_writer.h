// A Watch stream that sends the newest plan and skips plans for which the
// receiver is too slow. Holds no thread.
//
// A plan that says what has changed since the one before it takes over what the
// skipped ones say.
//
// A plan that exceeds one message is sent in parts. Once its first part is
// sent, the plan is not skipped; otherwise no plan might ever arrive whole.
//
// Thread-safe. Keeps itself alive until gRPC is done with it.

#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/rpc/status.h"
#include "base/status/refusal.h"
#include "base/sync/mutex.h"
#include "coordinator/service/plan_sink.h"
#include "grpcpp/support/server_callback.h"

namespace atl::coordinator {

template <typename Response, typename Plan>
class LatestWriter : public grpc::ServerWriteReactor<Response>,
                     public PlanSink<Plan> {
 public:
  // Splits a plan into one or more messages, in order.
  using Cut = std::function<std::deque<Response>(Plan)>;
  // Adds what `skipped` says to `next`, the plan after it. Null: each plan says
  // everything.
  using Merge = std::function<void(Plan skipped, Plan& next)>;

  static std::shared_ptr<LatestWriter> Make(Cut cut, Merge merge = nullptr) {
    std::shared_ptr<LatestWriter> writer(
        new LatestWriter(std::move(cut), std::move(merge)));
    writer->self_ = writer;
    return writer;
  }

  void Offer(Plan plan) override {
    MutexLock lock(&mutex_);
    if (end_.has_value() || finished_) return;
    if (merge_ && next_.has_value()) merge_(*std::move(next_), plan);
    next_ = std::move(plan);
    Pump();
  }

  void End(absl::Status status) override {
    MutexLock lock(&mutex_);
    if (end_.has_value() || finished_) return;
    end_ = std::move(status);
    Pump();
  }

  bool done() const override {
    MutexLock lock(&mutex_);
    return end_.has_value() || finished_;
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mutex_);
    writing_ = false;
    response_ = Response();
    if (!ok) {
      next_.reset();
      parts_.clear();
      if (!end_.has_value()) end_ = absl::CancelledError("the stream broke");
    }
    Pump();
  }

  void OnCancel() override {
    MutexLock lock(&mutex_);
    next_.reset();
    parts_.clear();
    if (!end_.has_value()) end_ = absl::CancelledError("the caller is gone");
    Pump();
  }

  void OnDone() override {
    std::shared_ptr<LatestWriter> self;
    {
      MutexLock lock(&mutex_);
      finished_ = true;
      self = std::move(self_);
    }
  }

 private:
  LatestWriter(Cut cut, Merge merge)
      : cut_(std::move(cut)), merge_(std::move(merge)) {}

  // Starts the next write, or finishes the stream.
  void Pump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    if (parts_.empty() && next_.has_value()) {
      parts_ = cut_(*std::move(next_));
      next_.reset();
    }
    if (!parts_.empty()) {
      response_ = std::move(parts_.front());
      parts_.pop_front();
      writing_ = true;
      this->StartWrite(&response_);
    } else if (end_.has_value()) {
      finished_ = true;
      this->Finish(rpc::ToGrpc(WithDefaultReason(*end_)));
    }
  }

  const Cut cut_;
  const Merge merge_;
  mutable Mutex mutex_;
  std::shared_ptr<LatestWriter> self_ ABSL_GUARDED_BY(mutex_);
  std::optional<Plan> next_ ABSL_GUARDED_BY(mutex_);
  std::deque<Response> parts_ ABSL_GUARDED_BY(mutex_);  // The rest of one plan.
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  Response response_ ABSL_GUARDED_BY(mutex_);  // gRPC's while writing_.
};

}  // namespace atl::coordinator
