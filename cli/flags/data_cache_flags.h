// --data-cache and --cache-size: where data by URL is kept. And how it is read.

#pragma once

#include <cstdint>
#include <string>

#include "CLI/App.hpp"
#include "absl/status/statusor.h"
#include "base/host_port/proxy.h"
#include "cli/settings/settings.h"
#include "worker/api/run_data.h"

namespace atl::cli {

// The flags as written; empty: the default.
struct DataCacheFlags {
  std::string directory;
  std::string size;
};

// Adds both flags to `command`. `flags` must outlive the parse.
void AddDataCacheFlags(CLI::App& command, DataCacheFlags& flags);

// The cache that all islands of a user on this machine share.
std::string DefaultDataCache(const std::string& state_directory);

// Bytes. INVALID_ARGUMENT (a usage error that names the flag): not a size.
absl::StatusOr<int64_t> ReadCacheSize(const DataCacheFlags& flags);

// Opens stores with the credentials that `environment` names, and `access`.
worker::StoreOpener MakeStoreOpener(const Environment& environment,
                                    worker::StoreAccess access);

}  // namespace atl::cli
