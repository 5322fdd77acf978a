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

std::string PrefixEnd(absl::string_view prefix) {
  std::string end(prefix);
  while (!end.empty()) {
    const unsigned char last = static_cast<unsigned char>(end.back());
    if (last != 0xff) {
      end.back() = static_cast<char>(last + 1);
      return end;
    }
    end.pop_back();
  }
  return end;
}

}  // namespace atl::server
