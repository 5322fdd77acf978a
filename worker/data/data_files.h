// The files of a data set, and their order.
//
// Looks at the file system. Thread-compatible.

#ifndef WORKER_DATA_DATA_FILES_H_
#define WORKER_DATA_DATA_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "atoll/v1/run.pb.h"

namespace atl::worker {

// One file with tokens.
struct DataFile {
  std::string relative_path;  // To the root; empty if the root is the file.
  std::string path;           // To open it.
  int64_t size_bytes = 0;     // > 0.
};

// The files below `root`, or `root` itself, in the order of their relative
// paths: regular files, not empty; for LLMC and UINT16 only *.bin in a
// directory. Symbolic links below `root` are not followed.
//
// NOT_FOUND: nothing is at `root`. INVALID_ARGUMENT: there is no such file.
absl::StatusOr<std::vector<DataFile>> ListDataFiles(const std::string& root,
                                                    v1::DataFormat format);

// Shuffles `files` as worker/data/DESIGN.md says. Pure.
void ShuffleDataFiles(uint64_t seed, std::vector<DataFile>& files);

}  // namespace atl::worker

#endif  // WORKER_DATA_DATA_FILES_H_
