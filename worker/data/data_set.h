// The tokens of a data set, from files of bytes, llm.c .bin or raw uint16. Open
// takes local files; worker/data/fetch has data that comes by URL.
// worker/data/DESIGN.md defines order, split, data shards and fingerprint.
//
// Reads with pread; holds small sets in memory. Thread-safe after Open.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "atoll/v1/run.pb.h"
#include "worker/data/windows.h"

namespace atl::worker {

class DataSet {
 public:
  // Open reads a set of at most this size into memory.
  static constexpr int64_t kHeldBytesMax = int64_t{256} << 20;

  // Opens the data of `spec` at `path`. Never spec.path(), which a peer may have
  // chosen (worker/data/local_data.h).
  //
  // NOT_FOUND: nothing is there. INVALID_ARGUMENT: no files, no tokens, a file
  // of another format, or a field of `spec` out of range. Messages give a
  // remedy. Others: the system's.
  static absl::StatusOr<std::unique_ptr<DataSet>> Open(
      const v1::DataSpec& spec, const std::string& path);

  virtual ~DataSet() = default;

  // SHA-256 in hex; reads every byte.
  virtual absl::StatusOr<std::string> Fingerprint() const = 0;

  virtual int64_t token_count() const = 0;

  // Whether Read of `count` tokens would return at once. Never waits, and makes
  // what is missing come. DataAwaited (worker/core/data_awaited.h): not yet.
  // Others: as Read.
  virtual absl::Status Ready(int64_t offset, int64_t count) const {
    return absl::OkStatus();
  }
  // Tells that the token at `offset` will be read later. Does not wait.
  virtual void Prefetch(int64_t offset) const {}

  // Reads tokens [offset, offset + tokens.size()). OUT_OF_RANGE: beyond the
  // set. DATA_LOSS: a file became shorter or unreadable; the message names it.
  virtual absl::Status Read(int64_t offset,
                            absl::Span<int32_t> tokens) const = 0;

  // The held-out tokens, at the end of the set.
  virtual TokenRange validation() const;
  // The tokens of a data shard, in reading order. Requires: `data_shard` in
  // [0, data_shard_count).
  virtual std::vector<WindowGroup> window_groups(int32_t data_shard) const;

 protected:
  explicit DataSet(const v1::DataSpec& spec) : spec_(spec) {}
  const v1::DataSpec spec_;
};

}  // namespace atl::worker
