#include "base/rpc/flags.h"

#include "CLI/CLI.hpp"

namespace atl::rpc {

void AddSecurityFlags(CLI::App& app, Security& security) {
  app.add_option("--tls-cert", security.tls.cert,
                 "Our certificate (PEM). Off loopback the three --tls-* flags "
                 "or --insecure are needed.");
  app.add_option("--tls-key", security.tls.key,
                 "The private key of --tls-cert (PEM).");
  app.add_option("--tls-ca", security.tls.ca,
                 "CA that signs the certificates of our peers (PEM).");
  app.add_flag("--insecure", security.insecure,
               "Allow plaintext off loopback: anyone who reaches the port "
               "acts as an operator.");
}

void AddProxyFlag(CLI::App& app, Proxy& proxy) {
  app.add_option("--proxy",
                 "http://[USER:PASSWORD@]HOST:PORT of a proxy that knows "
                 "CONNECT, through which it dials all but loopback")
      ->type_name("TEXT")
      ->envname("ATOLL_PROXY")
      ->check([&proxy](const std::string& url) {
        absl::StatusOr<Proxy> parsed = ParseProxy(url);
        if (parsed.ok()) proxy = *parsed;
        return std::string(parsed.status().message());
      });
}

void AddIslandCaFlag(CLI::App& app, Security& security) {
  app.add_option("--tls-island-ca", security.tls.island_ca,
                 "CA of enrolled islands and readers (PEM), which is accepted "
                 "for these roles alone.");
}

}  // namespace atl::rpc
