// Publishes data: uploads its files and writes the manifest that runs name in
// `[data] url`.

#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "atoll/v1/run.pb.h"
#include "worker/data/fetch/open_data.h"

namespace atl::worker {

struct PublishOptions {
  std::string input;  // A directory, or one file.
  std::string to;     // URL of a directory: file:// or s3://.
  // UNSPECIFIED: LLMC if the input has a *.bin, otherwise BYTES.
  v1::DataFormat format = v1::DATA_FORMAT_UNSPECIFIED;
  // Share of the tokens that is held out, in [0, 1): the last files, in the
  // order of their paths, and at least one. 0 holds nothing out.
  double held_out_fraction = 0.05;
  // Paths of held-out files, relative to `input`. If not empty they replace the
  // fraction. Parts of a split file are held out with it.
  std::vector<std::string> held_out_files;
  // Splits larger files between tokens; 0: none. At least kShardBytesMin.
  int64_t shard_bytes = 0;
  // Reads files that are there, and uploads those that differ. Without it S3's
  // record of a file's SHA-256, which an upload leaves, is believed.
  bool verify = false;
  std::stop_token stop;
  // Bytes done and in all, counted once for each pass; may be empty.
  std::function<void(int64_t, int64_t)> on_progress;
  StoreOpener open_store = OpenStoreOfUrl;
};

struct PublishResult {
  std::string url;  // The manifest's URL.
  std::string fingerprint;
  v1::DataFormat format = v1::DATA_FORMAT_UNSPECIFIED;
  int64_t file_count = 0;
  int64_t held_out_file_count = 0;
  int64_t token_count = 0;
  int64_t held_out_token_count = 0;
  int64_t uploaded_file_count = 0;   // The others were there.
  int64_t smallest_token_count = 0;  // A file's: bounds a run's windows.
};

inline constexpr int64_t kShardBytesMin = 4096;

// Files are uploaded first and the manifest last, so a run never sees half a
// data set. Calling it again continues. A file manifest.json in `input` is not
// data.
//
// INVALID_ARGUMENT: an option, or a file that does not have the format; too few
// files to hold one out. ALREADY_EXISTS: another data set is published there.
// UNIMPLEMENTED: `to` cannot be written. DATA_LOSS: a file changed meanwhile.
// CANCELLED: stopped. Others: the system's and the store's.
absl::StatusOr<PublishResult> PublishData(const PublishOptions& options);

}  // namespace atl::worker
