#include "coordinator/service/run_event_writer.h"

#include <algorithm>

#include "base/rpc/status.h"
#include "base/status/refusal.h"

namespace atl::coordinator {

std::shared_ptr<RunEventWriter> RunEventWriter::Make(int64_t after_revision) {
  std::shared_ptr<RunEventWriter> writer(new RunEventWriter(after_revision));
  MutexLock lock(&writer->mutex_);
  writer->self_ = writer;
  return writer;
}

void RunEventWriter::Begin(std::shared_ptr<RunEventPages> pages,
                           std::vector<std::string> island_ids) {
  MutexLock lock(&mutex_);
  pages_ = std::move(pages);
  names_ =
      std::make_shared<const std::vector<std::string>>(std::move(island_ids));
}

bool RunEventWriter::OnDurable(int64_t revision, bool run_ended) {
  MutexLock lock(&mutex_);
  durable_ = std::max(durable_, revision);
  run_ended_ = run_ended_ || run_ended;
  // A thread that reads, and the end of a write, look again.
  if (will_continue_ || reading_ || writing_ || finished_) return false;
  will_continue_ = true;
  return true;
}

void RunEventWriter::Continue() {
  MutexLock lock(&mutex_);
  will_continue_ = false;
  Pump();
}

void RunEventWriter::End(absl::Status status) {
  MutexLock lock(&mutex_);
  if (!end_.has_value()) end_ = std::move(status);
  Pump();
}

bool RunEventWriter::done() const {
  MutexLock lock(&mutex_);
  return end_.has_value() || finished_;
}

void RunEventWriter::OnWriteDone(bool ok) {
  MutexLock lock(&mutex_);
  writing_ = false;
  if (!ok && !end_.has_value()) end_ = absl::CancelledError("the stream broke");
  Pump();
}

void RunEventWriter::OnCancel() {
  MutexLock lock(&mutex_);
  if (!end_.has_value()) end_ = absl::CancelledError("the caller is gone");
  Pump();
}

void RunEventWriter::OnDone() {
  std::shared_ptr<RunEventWriter> self;
  {
    MutexLock lock(&mutex_);
    finished_ = true;
    self = std::move(self_);
  }
}

void RunEventWriter::Pump() {
  if (reading_) return;  // That thread looks again.
  while (!writing_ && !finished_) {
    if (end_.has_value()) {
      finished_ = true;
      Finish(rpc::ToGrpc(WithDefaultReason(*end_)));
      return;
    }
    if (sent_ >= durable_) {
      if (!run_ended_) return;
      end_ = absl::OkStatus();
      continue;
    }
    // The loop's thread must not wait for the log.
    reading_ = true;
    const std::shared_ptr<RunEventPages> pages = pages_;
    const int64_t sent = sent_, durable = durable_;
    const IslandNames names = names_;
    mutex_.Unlock();
    const auto page = pages->Read(sent, durable, names);
    mutex_.Lock();
    reading_ = false;
    if (end_.has_value()) continue;
    if (!page.ok()) {
      end_ = page.status();
      continue;
    }
    sent_ = (*page)->end;
    names_ = (*page)->names_after;
    if (!(*page)->has_events) continue;
    bytes_ = (*page)->bytes;
    writing_ = true;
    StartWrite(&bytes_);
  }
}

}  // namespace atl::coordinator
