// The weights of a model directory: model.safetensors, or the files that
// model.safetensors.index.json names, as Hugging Face's libraries write them.
//
// Headers are read and checked when a directory is opened, values later, as
// f32: F32 as it is, BF16 and F16 widened, which is exact.
//
// Thread-compatible.

#ifndef WORKER_CHECKPOINT_WEIGHT_FILES_H_
#define WORKER_CHECKPOINT_WEIGHT_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/codec/sha256.h"
#include "base/io/file_system.h"
#include "worker/checkpoint/safetensors.h"

namespace atl::worker {

class WeightFile {
 public:
  // NOT_FOUND: there is no such file. DATA_LOSS: it is truncated or damaged;
  // the message names it and says what to do.
  static absl::StatusOr<std::unique_ptr<WeightFile>> Open(
      FileSystem& file_system, const std::string& path);

  const std::string& path() const { return path_; }
  // In the order of their bytes.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }

  // Reads the next tensor, beginning with the first; `values` has room for its
  // elements, or is null to skip it.
  //
  // INVALID_ARGUMENT: its dtype is none of F32, BF16, F16. DATA_LOSS: the file
  // ends too early.
  absl::Status ReadNext(float* values);

  // SHA-256 (hex) of the file. Requires: every tensor was read.
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
  std::string piece_;  // Bytes on their way into f32.
};

// The error of a file that is not what it was written as.
absl::Status DamagedFile(const std::string& path, absl::string_view what);

// Names of the weight files in `directory`, in order.
//
// NOT_FOUND: there are none. DATA_LOSS: the index is damaged, or names a file
// outside of the directory.
absl::StatusOr<std::vector<std::string>> ListWeightFiles(
    FileSystem& file_system, const std::string& directory);

}  // namespace atl::worker

#endif  // WORKER_CHECKPOINT_WEIGHT_FILES_H_
