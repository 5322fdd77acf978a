#include "cli/flags/data_cache_flags.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/host_port/host_port.h"
#include "base/net/socket.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"
#include "cli/output/error.h"
#include "cli/units/units.h"

namespace atl::cli {

void AddDataCacheFlags(flags::Command& command, DataCacheFlags& flags) {
  command.Add("--data-cache", flags.directory,
              "Directory for data that comes by URL; islands of a "
              "machine may share it; default: one for this user");
  command.Add("--cache-size", flags.size,
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

namespace {

constexpr absl::Duration kLookUpMax = absl::Seconds(3);

// nullopt: not known now.
std::optional<std::set<AddressBlock>> FindBlocks(const HostPort& host,
                                                 bool looks_up,
                                                 const Proxy& proxy) {
  if (const auto block = FindAddressBlockOfHost(host.host)) return {{*block}};
  if (!looks_up || proxy.Serves(host.host)) return std::set<AddressBlock>();
  const auto addresses =
      net::FindAddresses(host, {SystemClock().Now() + kLookUpMax});
  if (!addresses.ok()) return std::nullopt;
  std::set<AddressBlock> blocks;
  for (const std::string& address : *addresses) {
    blocks.insert(
        FindAddressBlockOfHost(address).value_or(AddressBlock::kUnusable));
  }
  if (blocks.size() > 1) blocks.clear();
  return blocks;
}

}  // namespace

std::function<std::set<AddressBlock>()> MakeBlockFinder(
    const std::string& address, bool looks_up, const Proxy& proxy) {
  const absl::StatusOr<HostPort> host = ParseHostPort(address);
  if (!host.ok()) return [] { return std::set<AddressBlock>(); };
  struct Found {
    Mutex mutex;
    std::optional<std::set<AddressBlock>> blocks ABSL_GUARDED_BY(mutex);
  };
  return [host = *host, looks_up, proxy, found = std::make_shared<Found>()] {
    {
      MutexLock lock(&found->mutex);
      if (found->blocks.has_value()) return *found->blocks;
    }
    const auto blocks = FindBlocks(host, looks_up, proxy);
    MutexLock lock(&found->mutex);
    found->blocks = blocks;
    return blocks.value_or(std::set<AddressBlock>());
  };
}

worker::StoreOpener MakeRunStoreOpener(
    const Settings& settings, const Environment& environment,
    std::function<std::set<AddressBlock>()> find_blocks,
    worker::StoreAccess access) {
  access.proxy = settings.proxy();
  access.dial_policy = [find_blocks = std::move(find_blocks),
                        hosts = settings.allowed_data_hosts()] {
    return DialPolicy(find_blocks(), hosts);
  };
  return MakeStoreOpener(
      settings.has_data_credentials() ? environment : Environment(),
      std::move(access));
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
