// Gives back the disk space of deleted ranges. Thread-safe.
//
// RocksDB frees the space of deleted rows when it compacts the tables that hold
// them. In a quiet database that may be never. So one thread compacts the
// ranges once they hold enough bytes.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync/mutex.h"
#include "rocksdb/db.h"

namespace atl::coordinator {

class RangeCompactor {
 public:
  struct Range {
    std::string begin;
    std::string end;
  };

  // `get` returns the database, or null while it is closed. It is called on the
  // compactor's thread, and the result is dropped after each range.
  explicit RangeCompactor(std::function<std::shared_ptr<rocksdb::DB>()> get);
  // Cuts short the compaction that is under way.
  ~RangeCompactor();

  // `ranges` will be deleted. Returns those that have bytes in tables, for
  // Compact.
  static std::vector<std::pair<Range, int64_t>> Measure(
      rocksdb::DB& db, const std::vector<Range>& ranges);
  // Compacts the ranges, soon if they and those of earlier calls have at least
  // kBytesMin bytes. The destructor leaves waiting ranges to RocksDB.
  void Compact(std::vector<std::pair<Range, int64_t>> ranges);

 private:
  static constexpr int64_t kBytesMin = 1 << 20;
  static constexpr size_t kRangesMax = 1024;  // Waiting ranges.

  void Run();

  const std::function<std::shared_ptr<rocksdb::DB>()> get_;
  std::atomic<bool> is_cancelled_ = false;

  Mutex mutex_;
  CondVar changed_;
  std::vector<Range> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;  // Last: it uses the others.
};

}  // namespace atl::coordinator
