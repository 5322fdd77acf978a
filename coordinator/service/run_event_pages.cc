#include "coordinator/service/run_event_pages.h"

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "atoll/v1/training_state_service.pb.h"
#include "base/rpc/chunk_codec.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "coordinator/core/outputs/run_events.h"

namespace atl::coordinator {
namespace {

// Records per read, and bytes that fill a message.
constexpr int64_t kPageRecords = 32;
constexpr size_t kMessageBytes = 1 << 20;

bool AreSame(const IslandNames& a, const IslandNames& b) {
  return a == b || *a == *b;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const RunEventPage>> RunEventPages::Read(
    int64_t after, int64_t durable, const IslandNames& names) {
  {
    MutexLock lock(&mutex_);
    for (auto page = pages_.rbegin(); page != pages_.rend(); ++page) {
      if ((*page)->begin == after && (*page)->end <= durable &&
          AreSame((*page)->names_before, names)) {
        return *page;
      }
    }
    ++read_count_;
  }
  // Not under the lock: the loop's thread would wait for every stream that is
  // behind. Two that want the same page at once may both read it.
  ASSIGN_OR_RETURN(RunEventPage read, ReadLog(after, durable, names));
  auto page = std::make_shared<const RunEventPage>(std::move(read));
  MutexLock lock(&mutex_);
  pages_.push_back(page);
  byte_count_ += page->bytes.Length();
  while (pages_.size() > kPagesMax ||
         (byte_count_ > kBytesMax && pages_.size() > 1)) {
    byte_count_ -= pages_.front()->bytes.Length();
    pages_.pop_front();
  }
  return page;
}

int64_t RunEventPages::read_count() const {
  MutexLock lock(&mutex_);
  return read_count_;
}

absl::StatusOr<RunEventPage> RunEventPages::ReadLog(
    int64_t after, int64_t durable, const IslandNames& names) const {
  const absl::StatusOr<std::vector<storage::v1::Record>> records =
      store_.Scan(run_id_, after, std::min(kPageRecords, durable - after));
  if (absl::IsOutOfRange(records.status())) {
    return Refuse(absl::StatusCode::kOutOfRange, "REVISION_COMPACTED",
                  absl::StrCat(records.status().message(),
                               ": read the run (GetRunState, ListRounds), then "
                               "watch from its revision on"));
  }
  RETURN_IF_ERROR(records.status());
  if (records->empty()) {
    return absl::UnavailableError(absl::StrCat(
        "the log of run ", run_id_, " ends before record ", durable,
        ": the run was deleted just now, or its log is damaged"));
  }
  RunEventPage page;
  page.begin = page.end = after;
  page.names_before = names;
  std::vector<std::string> known = *names;
  bool has_new_name = false;
  v1::WatchRunResponse response;
  size_t byte_count = 0;
  for (const storage::v1::Record& record : *records) {
    if (record.revision() > durable) break;
    if (record.has_member_set()) {
      // A slot may have been another island's.
      const auto slot = static_cast<size_t>(record.member_set().slot());
      const std::string& name = record.member_set().island_id();
      if (slot >= known.size()) known.resize(slot + 1);
      has_new_name |= known[slot] != name;
      known[slot] = name;
    }
    std::optional<v1::RunEvent> event = ToEvent(record, known);
    page.end = record.revision();
    if (event.has_value()) {
      byte_count += event->ByteSizeLong();
      *response.add_events() = *std::move(event);
    }
    if (byte_count >= kMessageBytes) break;
  }
  page.names_after =
      has_new_name
          ? std::make_shared<const std::vector<std::string>>(std::move(known))
          : names;
  page.has_events = !response.events().empty();
  page.bytes = rpc::EncodeMessage(response);
  return page;
}

}  // namespace atl::coordinator
