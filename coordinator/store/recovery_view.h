// RocksDB's view of its files while it recovers.
//
// A disk may return zeros for a page that was synced. RocksDB reports a page
// that is lost inside a record, but skips a block whose first header reads as
// zeros. So these two look for what is missing themselves.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "rocksdb/file_system.h"
#include "rocksdb/wal_filter.h"

namespace atl::coordinator {

// Keys of the database as a whole (rocksdb_store.h).
inline constexpr char kFormatKey[] = "format";
inline constexpr char kIndexKey[] = "index";

// Follows the indices of the batches in RocksDB's log, oldest first.
// Thread-compatible.
class IndexFilter : public rocksdb::WalFilter {
 public:
  // Without `last` the database gets no batch of the log. Otherwise it gets the
  // batches up to index `last`, and none after the first with a greater one.
  explicit IndexFilter(std::optional<int64_t> last) : last_(last) {}

  const char* Name() const override { return "atoll.IndexFilter"; }
  WalProcessingOption LogRecordFound(unsigned long long, const std::string&,
                                     const rocksdb::WriteBatch& batch,
                                     rocksdb::WriteBatch* new_batch,
                                     bool* batch_changed) override;

  bool has_batches() const { return has_batches_; }
  // The newest value of kFormatKey in the log.
  const std::optional<std::string>& format() const { return format_; }
  // The last index that is reached without a gap by a database that has
  // `table_index` in its tables.
  int64_t FindLast(int64_t table_index) const;

 private:
  const std::optional<int64_t> last_;
  bool has_batches_ = false;
  std::optional<std::string> format_;
  // Ranges of indices without a gap, first and last, in the log's order.
  std::vector<std::pair<int64_t, int64_t>> ranges_;
};

// Bytes up to the end of the last whole record of a file in RocksDB's log
// format before the first record that is torn, damaged or overwritten. Pure.
int64_t MeasureWholeRecords(absl::string_view bytes);

// `files`, where the file `name` in any directory reads as if it had
// `size_bytes` bytes.
std::shared_ptr<rocksdb::FileSystem> CutFile(
    std::shared_ptr<rocksdb::FileSystem> files, std::string name,
    int64_t size_bytes);

}  // namespace atl::coordinator
