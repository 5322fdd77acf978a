// An open data file: its bytes, and how tokens lie in it. Thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "atoll/v1/run.pb.h"
#include "base/io/unique_fd.h"

namespace atl::worker {

// Token i is at header_bytes + i * token_bytes, little-endian.
struct TokenLayout {
  int64_t header_bytes = 0;
  int64_t token_bytes = 1;  // 1, 2 or 4.
  int64_t token_count = 0;
};

class DataFileReader {
 public:
  // Errors as the system's. Messages of all methods name `path`.
  static absl::StatusOr<DataFileReader> Open(const std::string& path);
  // `fd` is open for reading.
  DataFileReader(UniqueFd fd, std::string path)
      : fd_(std::move(fd)), path_(std::move(path)) {}

  // Reads all of `out`. DATA_LOSS: the file is shorter or unreadable.
  absl::Status ReadAt(int64_t offset, absl::Span<char> out) const;

  // SHA-256 in hex of the first `size_bytes` bytes. As ReadAt.
  absl::StatusOr<std::string> ComputeSha256(int64_t size_bytes) const;

  // INVALID_ARGUMENT: a file of `size_bytes` bytes does not have this format.
  absl::StatusOr<TokenLayout> ReadLayout(int64_t size_bytes,
                                         v1::DataFormat format) const;

 private:
  absl::StatusOr<TokenLayout> ReadLlmcLayout(int64_t size_bytes) const;

  UniqueFd fd_;
  std::string path_;
};

// Tokens of `token_bytes` (1, 2 or 4) bytes each as int32. A token that exceeds
// int32 becomes INT32_MAX, which is in no vocabulary.
void WidenTokens(const char* bytes, int64_t token_bytes,
                 absl::Span<int32_t> tokens);

}  // namespace atl::worker
