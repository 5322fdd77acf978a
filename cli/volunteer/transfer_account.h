// Counts the bytes that an island has sent and received on the present day. A
// file keeps the count, so a restart gives no second allowance. Neither does a
// clock that goes back by less than two days: the newest day that was seen
// stays the present one.
//
// CountReads counts what a store reads of data by URL.
//
// Thread-compatible.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "worker/api/run_data.h"

namespace atl::cli {

class TransferAccount {
 public:
  // Reads DIRECTORY/transfer.json, if it is there. `directory` empty: counts
  // without a file. Errors as ReadFileIn.
  // DATA_LOSS: the file is damaged.
  static absl::StatusOr<TransferAccount> Open(const std::string& directory,
                                              absl::TimeZone zone);

  // `byte_count` more were moved until `now`.
  void Add(int64_t byte_count, absl::Time now);
  // Writes the file if anything has changed. Errors as WriteFileIn.
  absl::Status Save();

  absl::CivilDay day() const { return day_; }
  int64_t byte_count() const { return byte_count_; }

 private:
  TransferAccount(std::string directory, absl::TimeZone zone)
      : directory_(std::move(directory)), zone_(zone) {}

  std::string directory_;
  absl::TimeZone zone_;
  absl::CivilDay day_;
  int64_t byte_count_ = 0;
  bool changed_ = false;
};

// Stores of `open` whose reads call `on_bytes` with the size of each piece.
// `on_bytes` is called on the threads that read, so it must be thread-safe.
worker::StoreOpener CountReads(worker::StoreOpener open,
                               std::function<void(int64_t)> on_bytes);

}  // namespace atl::cli
