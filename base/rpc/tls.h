// The three files of mutual TLS, and which addresses need them.
//
// Mutual TLS everywhere: a listener asks every caller for a certificate that
// its CA signed, a caller checks the listener's. There is no one-sided TLS.

#ifndef BASE_RPC_TLS_H_
#define BASE_RPC_TLS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace atl::rpc {

// Paths of PEM files; all set or all empty.
struct TlsFiles {
  std::string cert;  // --tls-cert: our certificate, with its chain.
  std::string key;   // --tls-key: its private key.
  std::string ca;    // --tls-ca: who signs the other side's certificates.

  bool empty() const { return cert.empty() && key.empty() && ca.empty(); }
};

// How the connections of a program are secured.
struct Security {
  TlsFiles tls;
  // --insecure: plaintext off loopback, with everyone an operator.
  bool insecure = false;
};

// What the files hold.
struct TlsMaterial {
  std::string cert_pem;
  std::string key_pem;
  std::string ca_pem;
};

// OK if all three paths are set or none is.
//
// INVALID_ARGUMENT: some are; the message names the flags that are missing.
absl::Status CheckTlsFiles(const TlsFiles& files);

// Reads the files.
//
// INVALID_ARGUMENT: a path is missing; a file is empty, larger than 1 MiB or not
// PEM; the key is not the certificate's, or has a password.
// NOT_FOUND: a file cannot be opened.
// UNAUTHENTICATED: the certificate has expired or is not valid yet; the other
// side would only break the connection. Messages name flag and path.
absl::StatusOr<TlsMaterial> ReadTlsFiles(const TlsFiles& files);

// OK if the first certificate of `cert_pem` is valid at `now`. Pure.
//
// INVALID_ARGUMENT: it holds no certificate. UNAUTHENTICATED: as above.
absl::Status CheckValidity(const std::string& cert_pem, absl::Time now);

// OK if `key_pem` is the private key of the first certificate of `cert_pem`.
// Pure.
//
// INVALID_ARGUMENT: it is not, or cannot be read.
absl::Status CheckKey(const std::string& cert_pem, const std::string& key_pem);

// The common name of the first certificate of `cert_pem`. Pure.
//
// INVALID_ARGUMENT: it holds no certificate. NOT_FOUND: it has no such name.
absl::StatusOr<std::string> ReadCommonName(const std::string& cert_pem);

}  // namespace atl::rpc

#endif  // BASE_RPC_TLS_H_
