// The weights of a model directory: model.safetensors, or the files that
// model.safetensors.index.json names.
//
// Open reads and checks headers; values are read later, as f32. BF16 and F16
// are widened, which is exact. Thread-compatible.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/codec/sha256.h"
#include "base/io/file_system.h"
#include "base/safetensors/safetensors.h"

namespace atl::worker {

class WeightFile {
 public:
  // NOT_FOUND: no such file. DATA_LOSS: truncated or damaged; the message names
  // the file and a remedy.
  static absl::StatusOr<std::unique_ptr<WeightFile>> Open(
      FileSystem& file_system, const std::string& path);

  const std::string& path() const { return path_; }
  // In file order.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }

  // Reads the next tensor, from the first one on, into `values`, which has one
  // float for each element; null skips the tensor. INVALID_ARGUMENT: its dtype
  // is not F32, BF16 or F16. DATA_LOSS: the file ends too early.
  absl::Status ReadNext(float* values);

  // Offset of the first tensor's bytes in the file.
  int64_t data_begin() const { return data_begin_; }
  // Reads the bytes from `offset` on, apart from ReadNext and its SHA-256.
  // DATA_LOSS: the file ends too early. Thread-safe.
  absl::Status Read(int64_t offset, absl::Span<char> out) const;

  // SHA-256 (hex) of the file. Requires: all tensors are read.
  std::string FinishSha256();

 private:
  explicit WeightFile(std::string path) : path_(std::move(path)) {}
  absl::Status ReadBytes(int64_t offset, char* out, int64_t byte_count);

  const std::string path_;
  std::unique_ptr<RandomAccessFile> file_;
  int64_t data_begin_ = 0;
  std::vector<SafetensorsEntry> entries_;
  size_t next_ = 0;
  codec::Sha256 sha_;
  std::string piece_;  // Read buffer.
};

// The error of a file that is damaged by `what`.
absl::Status DamagedFile(const std::string& path, absl::string_view what);

// Names of the weight files in `directory`, in order. NOT_FOUND: none.
// DATA_LOSS: the index is damaged, or names a file outside the directory.
absl::StatusOr<std::vector<std::string>> ListWeightFiles(
    FileSystem& file_system, const std::string& directory);

}  // namespace atl::worker
