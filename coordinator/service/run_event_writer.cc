#include "coordinator/service/run_event_writer.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/rpc/status.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "coordinator/core/outputs/run_events.h"

namespace atl::coordinator {
namespace {

// Records per read, and bytes that fill a message.
constexpr int64_t kPageRecords = 32;
constexpr size_t kMessageBytes = 1 << 20;

}  // namespace

std::shared_ptr<RunEventWriter> RunEventWriter::Make(const Store& store,
                                                     const std::string& run_id,
                                                     int64_t after_revision) {
  std::shared_ptr<RunEventWriter> writer(
      new RunEventWriter(store, run_id, after_revision));
  MutexLock lock(&writer->mutex_);
  writer->self_ = writer;
  return writer;
}

void RunEventWriter::SetIslands(std::vector<std::string> island_ids) {
  MutexLock lock(&mutex_);
  island_ids_ = std::move(island_ids);
}

void RunEventWriter::OnDurable(int64_t revision, bool run_ended) {
  MutexLock lock(&mutex_);
  durable_ = std::max(durable_, revision);
  run_ended_ = run_ended_ || run_ended;
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

absl::Status RunEventWriter::ReadPage() {
  response_.Clear();
  size_t byte_count = 0;
  const absl::StatusOr<std::vector<storage::v1::Record>> scanned =
      store_.Scan(run_id_, sent_, std::min(kPageRecords, durable_ - sent_));
  if (absl::IsOutOfRange(scanned.status())) {
    return Refuse(absl::StatusCode::kOutOfRange, "REVISION_COMPACTED",
                  absl::StrCat(scanned.status().message(),
                               ": read the run (GetRunState, ListRounds), then "
                               "watch from its revision on"));
  }
  RETURN_IF_ERROR(scanned.status());
  const std::vector<storage::v1::Record>& records = *scanned;
  if (records.empty()) {
    return absl::UnavailableError(absl::StrCat(
        "the log of run ", run_id_, " ends before record ", durable_,
        ": the run was deleted just now, or its log is damaged"));
  }
  for (const storage::v1::Record& record : records) {
    if (record.revision() > durable_) break;
    if (record.has_member_set()) {
      // A slot may have been another island's.
      const auto slot = static_cast<size_t>(record.member_set().slot());
      if (slot >= island_ids_.size()) island_ids_.resize(slot + 1);
      island_ids_[slot] = record.member_set().island_id();
    }
    std::optional<v1::RunEvent> event = ToEvent(record, island_ids_);
    sent_ = record.revision();
    if (event.has_value()) {
      byte_count += event->ByteSizeLong();
      *response_.add_events() = *std::move(event);
    }
    if (byte_count >= kMessageBytes) break;
  }
  return absl::OkStatus();
}

void RunEventWriter::Pump() {
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
    const absl::Status status = ReadPage();
    if (!status.ok()) {
      end_ = status;
    } else if (!response_.events().empty()) {
      writing_ = true;
      StartWrite(&response_);
    }
  }
}

}  // namespace atl::coordinator
