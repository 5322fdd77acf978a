#include "server/service/bidi_stream.h"

#include "base/rpc/authorization.h"
#include "base/rpc/chunk_codec.h"
#include "base/rpc/status.h"
#include "server/service/data_status.h"

namespace atl::server {

BidiStream::BidiStream(grpc::CallbackServerContext* call,
                       StreamWatchdog& watchdog)
    : call_(call),
      watchdog_(watchdog),
      gate_(std::make_shared<WaiterGate>(this)),
      progress_(std::make_shared<StreamProgress>()) {}

void BidiStream::Begin() {
  const absl::Status placed =
      watchdog_.Add(gate_, progress_, rpc::GetCallerName(*call_));
  if (!placed.ok()) {
    FinishWith(placed);
    return;
  }
  StartRead(&in_);
}

void BidiStream::OnReadDone(bool ok) {
  if (!ok) {
    progress_->waits_for_us = true;
    OnEnd();
    return;
  }
  if (finishing()) return;
  OnMessage(in_);
  in_.Clear();
  {
    MutexLock lock(&mutex_);
    waits_for_resume_ = paused_;
    if (paused_ || status_.has_value()) return;
  }
  StartRead(&in_);
}

void BidiStream::Pause() {
  MutexLock lock(&mutex_);
  paused_ = true;
}

void BidiStream::Resume() {
  {
    MutexLock lock(&mutex_);
    paused_ = false;
    if (!waits_for_resume_) return;
    waits_for_resume_ = false;
    if (status_.has_value()) return;
  }
  StartRead(&in_);
}

void BidiStream::Send(const google::protobuf::MessageLite& answer) {
  grpc::ByteBuffer bytes = rpc::EncodeMessage(answer);
  MutexLock lock(&mutex_);
  if (finished_ || status_.has_value()) return;
  out_.push_back(std::move(bytes));
  WriteNext();
}

void BidiStream::FinishWith(const absl::Status& status) {
  MutexLock lock(&mutex_);
  if (finished_ || status_.has_value()) return;
  status_ = status;
  WriteNext();
}

bool BidiStream::finishing() const {
  MutexLock lock(&mutex_);
  return status_.has_value();
}

void BidiStream::WriteNext() {
  if (writing_ || finished_) return;
  if (!out_.empty()) {
    writing_ = true;
    progress_->answering = true;
    StartWrite(&out_.front());
    return;
  }
  if (status_.has_value()) {
    finished_ = true;
    Finish(rpc::ToGrpc(ToDataStatus(*status_)));
  }
}

void BidiStream::OnWriteDone(bool ok) {
  MutexLock lock(&mutex_);
  writing_ = false;
  progress_->answering = false;
  out_.pop_front();
  if (!ok) {
    out_.clear();
    if (!status_.has_value())
      status_ = absl::CancelledError("the peer is gone");
  }
  WriteNext();
}

void BidiStream::OnSettled(const absl::Status& status) {
  if (status.ok()) Send(*MakeAnswer({}, /*stored=*/true));
  FinishWith(status);
}

void BidiStream::OnTooSlow(const absl::Status& status) {
  FinishWith(status);
  bool stuck = false;
  {
    MutexLock lock(&mutex_);
    stuck = writing_ || was_too_slow_ || progress_->ending;
    was_too_slow_ = true;
  }
  // The peer does not take the pending answer, or did not take the status.
  if (stuck) call_->TryCancel();
}

void BidiStream::OnDisplaced(const absl::Status& status) {
  FinishWith(status);
  progress_->ending = true;
}

void BidiStream::OnCancel() {
  FinishWith(absl::CancelledError("the call was cancelled"));
}

void BidiStream::OnDone() {
  gate_->Close();
  watchdog_.Remove(gate_.get());
  OnGone();
  delete this;
}

}  // namespace atl::server
