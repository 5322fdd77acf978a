#include "cli/flags/data_cache_flags.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cli/output/error.h"
#include "cli/units/units.h"

namespace atl::cli {

void AddDataCacheFlags(CLI::App& command, DataCacheFlags& flags) {
  command.add_option("--data-cache", flags.directory,
                     "Directory for data that comes by URL; islands of a "
                     "machine may share it; default: one for this user");
  command.add_option("--cache-size", flags.size,
                     "Most bytes of that directory; default: 20GB");
}

std::string DefaultDataCache(const std::string& state_directory) {
  return absl::StrCat(state_directory, "/data-cache");
}

absl::StatusOr<int64_t> ReadCacheSize(const DataCacheFlags& flags) {
  if (flags.size.empty()) return worker::kDataCacheBytesDefault;
  const absl::StatusOr<int64_t> bytes = ParseBytes(flags.size);
  if (!bytes.ok()) return WithContext(bytes.status(), "--cache-size");
  return bytes;
}

worker::StoreOpener MakeStoreOpener(const Environment& environment,
                                    worker::StoreAccess access) {
  access.environment =
      [environment](absl::string_view name) -> std::optional<std::string> {
    const auto found = environment.find(std::string(name));
    if (found == environment.end()) return std::nullopt;
    return found->second;
  };
  return worker::MakeStoreOpener(std::move(access));
}

}  // namespace atl::cli
