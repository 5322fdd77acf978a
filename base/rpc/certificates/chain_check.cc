#include "base/rpc/certificates/chain_check.h"

#include <openssl/x509v3.h>

#include "base/rpc/certificates/x509.h"

namespace atl::rpc {

absl::Status CheckChain(const std::string& chain_pem, const std::string& ca_pem,
                        KeyUse use, absl::Time now) {
  return VerifyChain(ReadCertificates(chain_pem), ca_pem,
                     use == KeyUse::kServer ? X509_PURPOSE_SSL_SERVER
                                            : X509_PURPOSE_SSL_CLIENT,
                     now);
}

}  // namespace atl::rpc
