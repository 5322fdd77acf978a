// --data-cache and --cache-size: where data by URL is kept. And how it is read.

#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "base/flags/flags.h"
#include "base/host_port/address_block.h"
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
void AddDataCacheFlags(flags::Command& command, DataCacheFlags& flags);

// The cache that all islands of a user on this machine share.
std::string DefaultDataCache(const std::string& state_directory);

// Bytes. INVALID_ARGUMENT (a usage error that names the flag): not a size.
absl::StatusOr<int64_t> ReadCacheSize(const DataCacheFlags& flags);

// Opens stores of this user's own URLs, with the credentials that `environment`
// names, and `access`.
worker::StoreOpener MakeStoreOpener(const Environment& environment,
                                    worker::StoreAccess access);

// The block of addresses in which a host is, if it is not public: a run's data
// may be there too. The host is HOST:PORT. `looks_up`: a name is looked up, and
// counts if all its addresses are in one block. A peer that chose the name may
// change its addresses at will, so only a literal address of a peer counts.
// Thread-safe; asks until it has an answer, 3 s at most each time.
std::function<std::set<AddressBlock>()> MakeBlockFinder(
    const std::string& address, bool looks_up, const Proxy& proxy);

// Opens stores of URLs that a run names: of hosts in `find_blocks` and those of
// --allow-data-host, or public ones over https://. This user's own credentials
// are used only with --data-credentials.
worker::StoreOpener MakeRunStoreOpener(
    const Settings& settings, const Environment& environment,
    std::function<std::set<AddressBlock>()> find_blocks,
    worker::StoreAccess access);

}  // namespace atl::cli
