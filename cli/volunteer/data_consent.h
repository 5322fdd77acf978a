// The folders that this machine's person allowed once for the data of any run
// (`atoll data allow`): the file data.consent in the configuration's folder, of
// mode 0600. Each line is a path, escaped as in C.
//
// A function is thread-compatible; of two programs that change the file at
// once, one waits for the other.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace atl::cli {

// The folders, absolute and without links, sorted. None if there is no file, or
// `config_directory` is empty. DATA_LOSS: the file is not what AllowData
// writes.
absl::StatusOr<std::vector<std::string>> ReadAllowedData(
    const std::string& config_directory);

// Adds a folder. Returns it as it is kept. INVALID_ARGUMENT: it is no folder,
// or the whole machine ("/"). FAILED_PRECONDITION: no HOME says where to keep
// it. Others: the system's.
absl::StatusOr<std::string> AllowData(const std::string& config_directory,
                                      const std::string& folder);

// Removes a folder, which need not exist any more. Returns it as it was kept.
// NOT_FOUND: it is not allowed.
absl::StatusOr<std::string> DisallowData(const std::string& config_directory,
                                         const std::string& folder);

}  // namespace atl::cli
