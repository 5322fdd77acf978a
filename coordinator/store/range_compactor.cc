#include "coordinator/store/range_compactor.h"

#include "base/obs/log.h"
#include "rocksdb/options.h"

namespace atl::coordinator {

RangeCompactor::RangeCompactor(
    std::function<std::shared_ptr<rocksdb::DB>()> get)
    : get_(std::move(get)), thread_([this] { Run(); }) {}

RangeCompactor::~RangeCompactor() {
  is_cancelled_ = true;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

std::vector<std::pair<RangeCompactor::Range, int64_t>> RangeCompactor::Measure(
    rocksdb::DB& db, const std::vector<Range>& ranges) {
  std::vector<std::pair<Range, int64_t>> measured;
  rocksdb::SizeApproximationOptions options;
  options.include_memtables = false;
  options.include_files = true;
  for (const Range& range : ranges) {
    const rocksdb::Range asked(range.begin, range.end);
    uint64_t bytes = 0;
    const rocksdb::Status status = db.GetApproximateSizes(
        options, db.DefaultColumnFamily(), &asked, 1, &bytes);
    if (status.ok() && bytes > 0) {
      measured.emplace_back(range, static_cast<int64_t>(bytes));
    }
  }
  return measured;
}

void RangeCompactor::Compact(std::vector<std::pair<Range, int64_t>> ranges) {
  MutexLock lock(&mutex_);
  for (auto& [range, bytes] : ranges) {
    waiting_.push_back(std::move(range));
    waiting_bytes_ += bytes;
  }
  if (waiting_bytes_ >= kBytesMin || waiting_.size() >= kRangesMax) {
    changed_.Signal();
  }
}

void RangeCompactor::Run() {
  while (true) {
    std::vector<Range> ranges;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && waiting_bytes_ < kBytesMin &&
             waiting_.size() < kRangesMax) {
        changed_.Wait(&mutex_);
      }
      if (stopping_) return;
      ranges.swap(waiting_);
      waiting_bytes_ = 0;
    }
    for (const Range& range : ranges) {
      const std::shared_ptr<rocksdb::DB> db = get_();
      if (db == nullptr || is_cancelled_) break;
      rocksdb::CompactRangeOptions options;
      options.exclusive_manual_compaction = false;
      options.canceled = &is_cancelled_;
      const rocksdb::Slice begin(range.begin);
      const rocksdb::Slice end(range.end);
      const rocksdb::Status status = db->CompactRange(options, &begin, &end);
      if (!status.ok() && !is_cancelled_) {
        LOG(WARNING) << "cannot compact deleted rows: " << status.ToString();
      }
    }
  }
}

}  // namespace atl::coordinator
