#include "cli/context.h"

#include <random>
#include <utility>

namespace atl::cli {

rpc::SecurityFlags Context::MakeSecurityFlags() const {
  rpc::SecurityFlags flags;
  flags.tls.ca = settings.Get("tls_ca");
  flags.tls.cert = settings.Get("tls_cert");
  flags.tls.key = settings.Get("tls_key");
  flags.insecure = settings.insecure();
  return flags;
}

rpc::ChannelOptions Context::MakeChannelOptions(rpc::ChannelKind kind) const {
  return rpc::MakeChannelOptions(kind, MakeSecurityFlags());
}

absl::StatusOr<std::unique_ptr<coordinator::RunClient>> Context::MakeRunClient()
    const {
  return MakeRunClient(settings.Get("coordinator"));
}

absl::StatusOr<std::unique_ptr<coordinator::RunClient>> Context::MakeRunClient(
    const std::string& address) const {
  coordinator::RunClientOptions options;
  options.address = address;
  options.channel = MakeChannelOptions(rpc::ChannelKind::kControl);
  options.timeout = settings.timeout();
  options.seed = std::random_device()();
  return coordinator::MakeRunClient(options);
}

}  // namespace atl::cli
