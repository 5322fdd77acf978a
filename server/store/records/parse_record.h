// Parses a record of a shard.

#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/store/records/record_store.h"

namespace atl::server {

inline absl::Status DamagedRecord(const RecordStore::Record& record) {
  return absl::DataLossError(
      absl::StrCat("record ", record.first, " is damaged"));
}

// DATA_LOSS: the record does not parse; the message names it.
template <typename Message>
absl::StatusOr<Message> ParseRecord(const RecordStore::Record& record) {
  Message message;
  if (!message.ParseFromString(record.second)) return DamagedRecord(record);
  return message;
}

}  // namespace atl::server
