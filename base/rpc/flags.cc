#include "base/rpc/flags.h"

#include "CLI/CLI.hpp"

namespace atl::rpc {

void AddSecurityFlags(CLI::App& app, SecurityFlags& flags) {
  app.add_option("--tls_cert", flags.tls.cert,
                 "Our certificate (PEM). Off loopback the three --tls_ flags "
                 "or --insecure are needed.");
  app.add_option("--tls_key", flags.tls.key,
                 "The private key of --tls_cert (PEM).");
  app.add_option("--tls_ca", flags.tls.ca,
                 "Who signs the certificates of the other side (PEM).");
  app.add_flag("--insecure", flags.insecure,
               "Plaintext off loopback too: whoever reaches the port is an "
               "operator.");
}

}  // namespace atl::rpc
