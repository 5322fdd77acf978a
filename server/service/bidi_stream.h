// The writing half of a bulk stream: answers go out one after the other, and
// the status when all of them have.
//
// Thread-safe. UploadStream inherits it.

#ifndef SERVER_SERVICE_BIDI_STREAM_H_
#define SERVER_SERVICE_BIDI_STREAM_H_

#include <deque>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
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
  // PushWaiter: `status` of OK sends what StoredAnswer says, then ends.
  void OnSettled(const absl::Status& status) override;
  void OnTooSlow(const absl::Status& status) override;
  void OnDisplaced(const absl::Status& status) override;

 protected:
  BidiStream(grpc::CallbackServerContext* call, StreamWatchdog& watchdog);

  // Begins to read; to be called once, by the maker. Refuses the stream if
  // there are too many.
  void Begin();

  // Leaves its place among the streams to another; something else bounds how
  // many there are of its kind.
  void LeavePlace() { watchdog_.LeavePlace(gate_.get()); }

  // Takes one message. Called one at a time; the next is read when it returns,
  // or, if it has called Pause, when Resume is called too.
  virtual void OnMessage(const grpc::ByteBuffer& message) = 0;
  // The peer sends no more, or is gone.
  virtual void OnEnd() = 0;
  // The last call: nothing is called after it.
  virtual void OnGone() = 0;
  // What says that everything is stored.
  virtual std::unique_ptr<google::protobuf::MessageLite> StoredAnswer()
      const = 0;

  // See OnMessage. Resume may be called from any thread, before OnMessage has
  // returned too.
  void Pause();
  void Resume();

  // Queues an answer.
  void Send(const google::protobuf::MessageLite& answer);
  // Ends the stream once all answers are out. Only the first call counts.
  void FinishWith(const absl::Status& status);
  bool finishing() const;

  grpc::CallbackServerContext& call() const { return *call_; }
  const std::shared_ptr<WaiterGate>& gate() const { return gate_; }
  StreamProgress& progress() { return *progress_; }

 private:
  void OnReadDone(bool ok) final;
  void OnWriteDone(bool ok) final;
  void OnCancel() final;
  void OnDone() final;
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::CallbackServerContext* const call_;
  StreamWatchdog& watchdog_;
  const std::shared_ptr<WaiterGate> gate_;
  const std::shared_ptr<StreamProgress> progress_;
  grpc::ByteBuffer in_;

  mutable Mutex mutex_;
  std::deque<grpc::ByteBuffer> out_
      ABSL_GUARDED_BY(mutex_);  // Front: on its way.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;
  bool waits_for_resume_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool was_too_slow_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server

#endif  // SERVER_SERVICE_BIDI_STREAM_H_
