// The writing half of a bulk stream: sends answers in order, then the status.
// UploadStream inherits it. Thread-safe.

#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/layout/layout.h"
#include "base/sync/mutex.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/service/stream_watchdog.h"
#include "server/waiters/push_waiters.h"

namespace atl::server {

class BidiStream
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
      public PushWaiter {
 public:
  // PushWaiter: an OK `status` first answers that everything is stored.
  void OnSettled(const absl::Status& status) override;
  void OnTooSlow(const absl::Status& status) override;
  void OnDisplaced(const absl::Status& status) override;

  void AskFor(const std::vector<IndexRange>& missing) {
    Send(*MakeAnswer(missing, /*stored=*/false));
  }
  // Stops reading messages until Resume. Any thread may call Resume, even
  // before OnMessage returns.
  void Pause();
  void Resume();
  // Ends the stream after all queued answers. Only the first call counts.
  void FinishWith(const absl::Status& status);
  bool finishing() const;

 protected:
  BidiStream(grpc::CallbackServerContext* call, StreamWatchdog& watchdog);

  // Starts reading; called once, by the creator. Refuses if no place is free.
  void Begin();

  // Gives up the stream's place; its kind needs another bound.
  void LeavePlace() { watchdog_.LeavePlace(gate_.get()); }
  // Ends the stream once `check` is not OK (StreamWatchdog::LimitTo).
  void LimitTo(std::function<absl::Status()> check) {
    watchdog_.LimitTo(gate_.get(), std::move(check));
  }

  // Handles one message at a time. The next is read after it, or after Resume.
  virtual void OnMessage(const grpc::ByteBuffer& message) = 0;
  // The peer has half-closed or is gone.
  virtual void OnEnd() = 0;
  // The last call.
  virtual void OnGone() = 0;
  // The answer that names missing blocks, or says `stored`.
  virtual std::unique_ptr<google::protobuf::MessageLite> MakeAnswer(
      const std::vector<IndexRange>& missing, bool stored) const = 0;

  grpc::CallbackServerContext& call() const { return *call_; }
  const std::shared_ptr<WaiterGate>& gate() const { return gate_; }
  StreamProgress& progress() { return *progress_; }

 private:
  void OnReadDone(bool ok) final;
  void OnWriteDone(bool ok) final;
  void OnCancel() final;
  void OnDone() final;
  void Send(const google::protobuf::MessageLite& answer);
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::CallbackServerContext* const call_;
  StreamWatchdog& watchdog_;
  const std::shared_ptr<WaiterGate> gate_;
  const std::shared_ptr<StreamProgress> progress_;
  grpc::ByteBuffer in_;

  mutable Mutex mutex_;
  std::deque<grpc::ByteBuffer> out_
      ABSL_GUARDED_BY(mutex_);  // Front: being written.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;
  bool waits_for_resume_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool was_too_slow_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
