// Records in memory, in the order of their names. Thread-compatible.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/store/records/record_store.h"

namespace atl::server {

class RecordMap {
 public:
  void Apply(const RecordBatch& batch);
  // NOT_FOUND: no record has this name.
  absl::StatusOr<std::string> Get(absl::string_view name) const;
  // As RecordStore::Scan.
  std::vector<RecordStore::Record> Scan(absl::string_view prefix) const;

  const std::map<std::string, std::string, std::less<>>& records() const {
    return records_;
  }
  // Bytes of all names and values.
  int64_t byte_count() const { return byte_count_; }

 private:
  using Iterator = std::map<std::string, std::string, std::less<>>::iterator;
  Iterator Erase(Iterator it);

  std::map<std::string, std::string, std::less<>> records_;
  int64_t byte_count_ = 0;
};

}  // namespace atl::server
