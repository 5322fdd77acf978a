// The flags of security that every program has in common.

#ifndef BASE_RPC_FLAGS_H_
#define BASE_RPC_FLAGS_H_

#include "CLI/App.hpp"
#include "base/rpc/tls.h"

namespace atl::rpc {

// What the flags say.
struct SecurityFlags {
  TlsFiles tls;
  // Plaintext off loopback, with everyone an operator: asked for explicitly.
  bool insecure = false;
};

// Adds --tls_cert, --tls_key, --tls_ca and --insecure to `app`. `flags` must
// outlive the parse.
void AddSecurityFlags(CLI::App& app, SecurityFlags& flags);

}  // namespace atl::rpc

#endif  // BASE_RPC_FLAGS_H_
