#include "server/store/records/record_map.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace atl::server {

RecordMap::Iterator RecordMap::Erase(Iterator it) {
  byte_count_ -= static_cast<int64_t>(it->first.size() + it->second.size());
  return records_.erase(it);
}

void RecordMap::Apply(const RecordBatch& batch) {
  for (const RecordBatch::Change& change : batch.changes()) {
    auto it = records_.lower_bound(change.name);
    switch (change.kind) {
      case RecordBatch::Change::Kind::kPut:
        if (it != records_.end() && it->first == change.name) Erase(it);
        records_[change.name] = change.value;
        byte_count_ +=
            static_cast<int64_t>(change.name.size() + change.value.size());
        break;
      case RecordBatch::Change::Kind::kDelete:
        if (it != records_.end() && it->first == change.name) Erase(it);
        break;
      case RecordBatch::Change::Kind::kDeletePrefix:
        while (it != records_.end() &&
               absl::StartsWith(it->first, change.name)) {
          it = Erase(it);
        }
        break;
    }
  }
}

absl::StatusOr<std::string> RecordMap::Get(absl::string_view name) const {
  const auto it = records_.find(name);
  if (it == records_.end()) {
    return absl::NotFoundError(absl::StrCat("no record ", name));
  }
  return it->second;
}

std::vector<RecordStore::Record> RecordMap::Scan(
    absl::string_view prefix) const {
  std::vector<RecordStore::Record> found;
  for (auto it = records_.lower_bound(prefix);
       it != records_.end() && absl::StartsWith(it->first, prefix); ++it) {
    found.push_back(*it);
  }
  return found;
}

}  // namespace atl::server
