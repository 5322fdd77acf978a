// The files of a run's contributions: made, lent and taken back.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "server/store/header_page.h"
#include "server/store/run_store.h"

namespace atl::server {

const EncodedRange& RunStore::FindEncoded(const ContributionKey& key) const {
  return key.is_import() ? import_ranges_[key.fragment]
                         : encoded_ranges_[key.fragment];
}

absl::StatusOr<std::unique_ptr<Segment>> RunStore::NewSegment(
    int32_t fragment, int64_t payload_bytes) {
  auto segment = std::make_unique<Segment>();
  {
    MutexLock lock(&mutex_);
    segment->number = next_segment_++;
  }
  segment->payload_bytes = payload_bytes;
  segment->path = names_.SegmentPath(segment->number);
  records::SegmentHeader header;
  header.set_segment(segment->number);
  header.set_fragment(fragment);
  header.set_payload_bytes(payload_bytes);
  ASSIGN_OR_RETURN(const std::string page,
                   EncodeHeaderPage("ATOLLSEG", header));
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> file =
      fs_.OpenForWrite(segment->path);
  if (!file.ok()) {
    GiveNumberBack(segment->number);
    return file.status();
  }
  segment->file = *std::move(file);
  absl::Status made =
      segment->file->Preallocate(kHeaderPageBytes + payload_bytes);
  if (made.ok()) made = segment->file->WriteAt(0, page);
  if (made.ok() && durability_ == Sync::kMachine) {
    made = segment->file->Sync();
    if (made.ok()) {
      made = fs_.SyncDirectory(absl::StrCat(names_.directory(), "/log"));
    }
  }
  if (!made.ok()) {
    segment->file.reset();
    fs_.Remove(segment->path).IgnoreError();
    GiveNumberBack(segment->number);
    return made;
  }
  return segment;
}

void RunStore::GiveNumberBack(int64_t number) {
  MutexLock lock(&mutex_);
  if (next_segment_ == number + 1) next_segment_ = number;
}

bool RunStore::IsUsedAgain(int32_t fragment, const Segment& segment) const {
  return !merges_live_ &&
         segment.payload_bytes == encoded_ranges_[fragment].byte_count();
}

absl::StatusOr<std::unique_ptr<Segment>> RunStore::TakeSegment(
    const ContributionKey& key) {
  const int64_t payload_bytes = FindEncoded(key).byte_count();
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

void RunStore::Recycle(int32_t fragment, std::unique_ptr<Segment> segment) {
  if (segment == nullptr) return;
  if (!IsUsedAgain(fragment, *segment)) {
    fs_.Remove(segment->path).IgnoreError();
    return;
  }
  MutexLock lock(&mutex_);
  free_segments_[fragment].push_back(std::move(segment));
}

void RunStore::RecycleAll(std::vector<FreedSegment> segments) {
  for (FreedSegment& freed : segments) {
    Recycle(freed.key.fragment, std::move(freed.segment));
  }
}

void RunStore::DropUselessSegments() {
  std::map<int32_t, std::vector<std::unique_ptr<Segment>>> found;
  {
    MutexLock lock(&mutex_);
    found.swap(free_segments_);
  }
  for (auto& [fragment, free] : found) {
    for (std::unique_ptr<Segment>& segment : free) {
      Recycle(fragment, std::move(segment));
    }
  }
}

void RunStore::DropSpares() {
  std::vector<std::string> paths;
  // Nobody makes a file under a name that is removed here.
  MutexLock making(&making_mutex_);
  {
    MutexLock lock(&mutex_);
    for (const auto& [fragment, segments] : free_segments_) {
      for (const auto& segment : segments) paths.push_back(segment->path);
    }
    free_segments_.clear();
    for (auto* spares : {&spare_versions_, &spare_sums_}) {
      for (const auto& [fragment, files] : *spares) {
        for (const auto& file : files) paths.push_back(file->path());
      }
      spares->clear();
    }
    for (const auto& [place, file] : reserved_versions_) {
      paths.push_back(file->path());
    }
    reserved_versions_.clear();
  }
  // What stays is removed at the next start, or is spare then.
  for (const std::string& path : paths) fs_.Remove(path).IgnoreError();
  if (deltas_ != nullptr) deltas_->DropSpares();
}

absl::Status RunStore::ReserveRound(int32_t fragment, int64_t version,
                                    int64_t count) {
  while (!merges_live_) {
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
        NewSegment(fragment, encoded_ranges_[fragment].byte_count()));
    Recycle(fragment, std::move(segment));
  }
  const std::pair<int32_t, int64_t> place = {fragment, version + 1};
  MutexLock making(&making_mutex_);
  // A merge was faster: its file has this name already.
  if (newest_made_[fragment] > version) return absl::OkStatus();
  {
    MutexLock lock(&mutex_);
    if (reserved_versions_.count(place)) return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(std::shared_ptr<VersionFile> file,
                   MakeVersionFile(fragment, version + 1));
  MutexLock lock(&mutex_);
  reserved_versions_[place] = std::move(file);
  return absl::OkStatus();
}

}  // namespace atl::server
