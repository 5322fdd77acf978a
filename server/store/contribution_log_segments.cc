// The segment files of contributions: creation and reuse.

#include <string>
#include <utility>

#include "base/status/status_macros.h"
#include "server/store/contribution_log.h"
#include "server/store/header_page.h"

namespace atl::server {

absl::StatusOr<std::unique_ptr<Segment>> ContributionLog::NewSegment(
    int32_t fragment, int64_t payload_bytes) {
  auto segment = std::make_unique<Segment>();
  {
    MutexLock lock(&mutex_);
    segment->number = next_segment_++;
  }
  segment->payload_bytes = payload_bytes;
  segment->path = context_.names.SegmentPath(segment->number);
  records::SegmentHeader header;
  header.set_segment(segment->number);
  header.set_fragment(fragment);
  header.set_payload_bytes(payload_bytes);
  ASSIGN_OR_RETURN(const std::string page,
                   EncodeHeaderPage("ATOLLSEG", header));
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> file =
      context_.fs.OpenForWrite(segment->path);
  if (!file.ok()) {
    GiveNumberBack(segment->number);
    return file.status();
  }
  segment->file = *std::move(file);
  absl::Status made =
      segment->file->Preallocate(kHeaderPageBytes + payload_bytes);
  if (made.ok()) made = segment->file->WriteAt(0, page);
  if (made.ok() && context_.durability == Sync::kMachine) {
    made = segment->file->Sync();
    if (made.ok()) {
      made = context_.fs.SyncDirectory(context_.names.log());
    }
  }
  if (!made.ok()) {
    segment->file.reset();
    context_.fs.Remove(segment->path).IgnoreError();
    GiveNumberBack(segment->number);
    return made;
  }
  return segment;
}

void ContributionLog::GiveNumberBack(int64_t number) {
  MutexLock lock(&mutex_);
  if (next_segment_ == number + 1) next_segment_ = number;
}

bool ContributionLog::IsReusable(int32_t fragment,
                                 const Segment& segment) const {
  return keeps_contributions() &&
         segment.payload_bytes ==
             context_.encoded_ranges[fragment].byte_count();
}

absl::StatusOr<std::unique_ptr<Segment>> ContributionLog::TakeSegment(
    const ContributionKey& key) {
  const int64_t payload_bytes = context_.FindEncoded(key).byte_count();
  {
    MutexLock lock(&mutex_);
    auto& free = free_segments_[key.fragment];
    if (!free.empty() && free.back()->payload_bytes == payload_bytes) {
      std::unique_ptr<Segment> segment = std::move(free.back());
      free.pop_back();
      return segment;
    }
  }
  return NewSegment(key.fragment, payload_bytes);
}

void ContributionLog::Recycle(int32_t fragment,
                              std::unique_ptr<Segment> segment) {
  if (segment == nullptr) return;
  if (IsReusable(fragment, *segment)) {
    MutexLock lock(&mutex_);
    auto& free = free_segments_[fragment];
    if (static_cast<int64_t>(free.size()) < reserved_[fragment]) {
      free.push_back(std::move(segment));
      return;
    }
  }
  context_.fs.Remove(segment->path).IgnoreError();
}

void ContributionLog::DropUselessSegments() {
  std::map<int32_t, std::vector<std::unique_ptr<Segment>>> found;
  {
    MutexLock lock(&mutex_);
    found.swap(free_segments_);
    for (const auto& [fragment, free] : found) {
      reserved_[fragment] = static_cast<int64_t>(free.size());
    }
  }
  for (auto& [fragment, free] : found) {
    for (std::unique_ptr<Segment>& segment : free) {
      Recycle(fragment, std::move(segment));
    }
  }
}

void ContributionLog::DropSpares() {
  std::map<int32_t, std::vector<std::unique_ptr<Segment>>> free;
  {
    MutexLock lock(&mutex_);
    free.swap(free_segments_);
  }
  // If a removal fails, the segment is free at the next start.
  for (const auto& [fragment, segments] : free) {
    for (const auto& segment : segments) {
      context_.fs.Remove(segment->path).IgnoreError();
    }
  }
}

absl::Status ContributionLog::Reserve(int32_t fragment, int64_t version,
                                      int64_t count) {
  {
    MutexLock lock(&mutex_);
    reserved_[fragment] = count;
  }
  while (keeps_contributions()) {
    {
      MutexLock lock(&mutex_);
      int64_t have = static_cast<int64_t>(free_segments_[fragment].size());
      for (const auto& [key, contribution] : contributions_) {
        have += key.fragment == fragment && !key.is_import() &&
                contribution->info().anchor_version() == version;
      }
      if (have >= count) break;
    }
    ASSIGN_OR_RETURN(
        std::unique_ptr<Segment> segment,
        NewSegment(fragment, context_.encoded_ranges[fragment].byte_count()));
    Recycle(fragment, std::move(segment));
  }
  return absl::OkStatus();
}

}  // namespace atl::server
