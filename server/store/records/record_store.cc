#include "server/store/records/record_store.h"

namespace atl::server {

void RecordBatch::Put(absl::string_view name, absl::string_view value) {
  changes_.push_back(
      {Change::Kind::kPut, std::string(name), std::string(value)});
}

void RecordBatch::Delete(absl::string_view name) {
  changes_.push_back({Change::Kind::kDelete, std::string(name), ""});
}

void RecordBatch::DeletePrefix(absl::string_view prefix) {
  changes_.push_back({Change::Kind::kDeletePrefix, std::string(prefix), ""});
}

}  // namespace atl::server
