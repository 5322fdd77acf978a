#include "base/flags/program_flags.h"

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace atl::flags {

void AddSecurityFlags(Command& command, rpc::Security& security) {
  // Declared before the flags of single files, whose values then win.
  command.AddText("--tls-dir",
                  {"",
                   [&tls = security.tls](const std::string& directory) {
                     if (!directory.empty()) UseTlsDirectory(directory, tls);
                     return std::string();
                   }},
                  "Directory of `atoll ca issue`: tls.crt, tls.key, ca.crt, "
                  "and, if they are there, island-ca.crt and crl.pem. Off "
                  "loopback it or --insecure is needed.");
  command.Add("--tls-cert", security.tls.cert,
              "Our certificate (PEM); default: tls.crt of --tls-dir.");
  command.Add("--tls-key", security.tls.key,
              "The private key of --tls-cert (PEM); default: tls.key.");
  command.Add("--tls-ca", security.tls.ca,
              "CA that signs our peers' certificates itself (PEM); default: "
              "ca.crt.");
  command.AddFlag("--insecure", security.insecure,
                  "Allow plaintext off loopback: anyone who reaches the port "
                  "acts as an operator.");
}

void AddIslandCaFlag(Command& command, rpc::Security& security) {
  command.Add("--tls-island-ca", security.tls.island_ca,
              "CA of enrolled islands and readers (PEM), which is accepted "
              "for these roles alone; default: island-ca.crt of --tls-dir.");
}

void AddProxyFlag(Command& command, Proxy& proxy) {
  const auto read = [&proxy](const std::string& url) {
    absl::StatusOr<Proxy> parsed = ParseProxy(url);
    if (parsed.ok()) proxy = *parsed;
    return std::string(parsed.status().message());
  };
  command
      .AddText("--proxy", {"", read},
               "http://[USER:PASSWORD@]HOST:PORT of a proxy that knows "
               "CONNECT, through which it dials all but loopback")
      .Environment("ATOLL_PROXY");
}

void AddTrustedProxyFlag(Command& command, std::vector<Network>& networks) {
  const auto read = [&networks](const std::string& text) -> std::string {
    const std::optional<Network> network = ParseNetwork(text);
    if (!network.has_value()) {
      return absl::StrCat("\"", text,
                          "\" is no network; 10.0.0.0/8 is an example");
    }
    networks.push_back(*network);
    return "";
  };
  command
      .AddText("--trusted-proxy", {"", read},
               "Network, as 10.0.0.0/8, of load balancers through which peers "
               "come: their addresses have no bound of their own; may be "
               "repeated")
      .Join(',');
}

void AddMetricsFlags(Command& command, MetricsListenerOptions& options) {
  const Flag listen =
      command.Add("--metrics-listen", options.address,
                  "HOST:PORT of a plaintext port for /metrics, /livez and "
                  "/readyz, open to anyone who reaches it; a port alone means "
                  "loopback, port 0 any free port; default: no port");
  command
      .Add("--metrics-port-file", options.port_file,
           "File to write the port of --metrics-listen to")
      .Needs(listen);
}

}  // namespace atl::flags
