// The tokens of a data set: files of bytes, llm.c .bin files or raw uint16, as
// one sequence. worker/data/DESIGN.md defines order, split, data shards and
// fingerprint.
//
// Reads with pread; small sets are held in memory. Thread-safe after Open.

#ifndef WORKER_DATA_DATA_SET_H_
#define WORKER_DATA_DATA_SET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "atoll/v1/run.pb.h"

namespace atl::worker {

// Half-open range of tokens.
struct TokenRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

class DataSet {
 public:
  // A set of at most so many bytes is read into memory at once.
  static constexpr int64_t kHeldBytesMax = int64_t{256} << 20;

  // Opens what `spec` describes, at `path` if it is not empty, else at
  // spec.path().
  //
  // NOT_FOUND: nothing is there. INVALID_ARGUMENT: no files, no tokens, a file
  // that is not of the format, a field of `spec` out of range. Messages say
  // what to do. Others: the system's.
  static absl::StatusOr<std::unique_ptr<DataSet>> Open(
      const v1::DataSpec& spec, const std::string& path);

  virtual ~DataSet() = default;

  // SHA-256 in hex; reads every byte.
  virtual absl::StatusOr<std::string> Fingerprint() const = 0;

  // Tokens, all of them.
  virtual int64_t token_count() const = 0;

  // Reads tokens [offset, offset + tokens.size()).
  //
  // OUT_OF_RANGE: they are not all there. DATA_LOSS: a file got shorter or
  // cannot be read any more; the message names it.
  virtual absl::Status Read(int64_t offset,
                            absl::Span<int32_t> tokens) const = 0;

  // Tokens that are held out, from the end.
  TokenRange validation() const;
  // Tokens of data shard `data_shard` in [0, data_shard_count).
  TokenRange shard(int32_t data_shard) const;

 protected:
  explicit DataSet(const v1::DataSpec& spec) : spec_(spec) {}
  const v1::DataSpec spec_;
};

}  // namespace atl::worker

#endif  // WORKER_DATA_DATA_SET_H_
