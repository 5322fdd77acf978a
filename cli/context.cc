#include "cli/context.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status/status_macros.h"
#include "cli/output/table.h"

namespace atl::cli {

rpc::Security Context::MakeSecurity() const {
  rpc::Security security;
  security.tls.ca = settings.Get("tls_ca");
  security.tls.cert = settings.Get("tls_cert");
  security.tls.key = settings.Get("tls_key");
  const std::string& directory = settings.Get("tls_dir");
  // The list of revoked certificates there is its CA's.
  if (security.tls.ca == directory + "/ca.crt") security.tls.dir = directory;
  security.insecure = settings.insecure();
  security.proxy = settings.proxy();
  return security;
}

rpc::ChannelOptions Context::MakeChannelOptions(rpc::ChannelKind kind) const {
  return rpc::MakeChannelOptions(kind, MakeSecurity());
}

absl::StatusOr<std::unique_ptr<coordinator::Client>> Context::MakeClient(
    const ClientUse& use) const {
  if (before_client) RETURN_IF_ERROR(before_client(use.stop));
  coordinator::ClientOptions options;
  options.address =
      use.address.empty() ? settings.Get("coordinator") : use.address;
  options.channel = MakeChannelOptions(rpc::ChannelKind::kControl);
  options.timeout = settings.timeout();
  options.stop = use.stop;
  options.on_waiting = [this, progress = use.progress](
                           absl::string_view peer, absl::Duration patience,
                           absl::string_view why) {
    const std::string line = absl::StrCat(
        "waiting for ", peer, ", at most ", absl::FormatDuration(patience),
        ": ", why, " (--timeout; Ctrl-C stops it)");
    if (progress != nullptr) {
      progress->Note(line);
    } else {
      messages_ << Printable(line) + "\n" << std::flush;
    }
  };
  return coordinator::MakeClient(options);
}

}  // namespace atl::cli
