// The files of a data set, and their order. Thread-compatible.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "atoll/v1/run.pb.h"

namespace atl::worker {

struct DataFile {
  std::string relative_path;  // To the root; empty if the root is the file.
  std::string path;
  int64_t size_bytes = 0;     // > 0.
};

// The files below `root`, or `root` itself, sorted by relative path. Only
// regular, non-empty files, and for LLMC and UINT16 only *.bin in a directory.
// Does not follow symbolic links below `root`.
//
// NOT_FOUND: nothing is at `root`. INVALID_ARGUMENT: no file qualifies.
absl::StatusOr<std::vector<DataFile>> ListDataFiles(const std::string& root,
                                                    v1::DataFormat format);

// Shuffles `files` as worker/data/DESIGN.md, Files, defines. Pure.
void ShuffleDataFiles(uint64_t seed, std::vector<DataFile>& files);

}  // namespace atl::worker
