// The files of mutual TLS.
//
// TLS is always mutual: a listener requires a certificate signed by its CA from
// every caller, and a caller verifies the listener's.

#pragma once

#include <openssl/x509.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/host_port/proxy.h"

namespace atl::rpc {

// Paths of PEM files; cert, key and ca are all set or all empty.
struct TlsFiles {
  std::string cert;  // --tls-cert: our certificate, with its chain.
  std::string key;   // --tls-key: its private key.
  std::string ca;    // --tls-ca: the CA of our peers' certificates.
  // --tls-island-ca: the CA of enrolled islands and readers, which a listener
  // accepts for these roles alone; empty: that of `dir`, if there is one.
  std::string island_ca;
  // --tls-dir: a directory of `atoll ca issue`. It may hold island-ca.crt, and
  // crl.pem, the list of revoked certificates. Empty: no such list.
  std::string dir;

  bool empty() const { return cert.empty() && key.empty() && ca.empty(); }
};

// Takes tls.crt, tls.key and ca.crt of `directory` for the paths that are empty.
void UseTlsDirectory(const std::string& directory, TlsFiles& files);

// The file of --tls-island-ca, else island-ca.crt of --tls-dir, which may be
// missing. Empty: neither is given.
std::string IslandCaPath(const TlsFiles& files);

// Whether there is such a file.
bool HasIslandCa(const TlsFiles& files);

// crl.pem of --tls-dir, which may be missing. Empty: there is no --tls-dir.
std::string RevocationListPath(const TlsFiles& files);

// How the connections of a program are secured.
struct Security {
  TlsFiles tls;
  // --insecure: plaintext off loopback; every caller is an operator.
  bool insecure = false;
  // --proxy: what is dialled is dialled through it.
  Proxy proxy;
};

struct TlsMaterial {
  std::string cert_pem;
  std::string key_pem;
  std::string ca_pem;
  std::string island_ca_pem;  // May be empty.
  std::string crl_pem;        // May be empty.

  bool operator==(const TlsMaterial&) const = default;
};

// INVALID_ARGUMENT: only some of the three paths are set. The message names the
// missing flags.
absl::Status CheckTlsFiles(const TlsFiles& files);

// Reads the files. Messages name flag and path.
// INVALID_ARGUMENT: a path is not set; a file is empty, larger than 1 MiB or
// not PEM; a CA's file holds no certificate; the key does not match the
// certificate, or has a password; --tls-ca also trusts what the island CA signs,
// for example because it is the root of both; no CA of --tls-ca signed crl.pem.
// NOT_FOUND: a file cannot be opened.
// UNAUTHENTICATED: at `now` the certificate has expired or is not valid yet.
// (The peer would only close the connection.)
absl::StatusOr<TlsMaterial> ReadTlsFiles(const TlsFiles& files,
                                         absl::Time now = absl::Now());

// The names of the CAs of `ca_pem` that may sign further CAs, such as a root.
// Pure.
std::vector<std::string> FindUpperAuthorities(const std::string& ca_pem);

// The side of a connection that a certificate stands for.
enum class KeyUse { kClient, kServer };

// Checks that the extended key usage of the first certificate of `cert_pem`
// permits `use`. A certificate without the extension permits nothing. Pure.
// INVALID_ARGUMENT: there is no certificate. UNAUTHENTICATED: it does not.
absl::Status CheckKeyUse(const std::string& cert_pem, KeyUse use);
absl::Status CheckKeyUse(X509& certificate, KeyUse use);

// Checks that the first certificate of `cert_pem` is valid at `now`. Pure.
// INVALID_ARGUMENT: there is no certificate. UNAUTHENTICATED: as above.
absl::Status CheckValidity(const std::string& cert_pem, absl::Time now);

// Checks that `key_pem` is the private key of the first certificate of
// `cert_pem`. Pure.
// INVALID_ARGUMENT: it is not, or cannot be read.
absl::Status CheckKey(const std::string& cert_pem, const std::string& key_pem);

// The common name of the first certificate of `cert_pem`. Pure.
// INVALID_ARGUMENT: there is no certificate. NOT_FOUND: it has no common name,
// or several.
absl::StatusOr<std::string> ReadCommonName(const std::string& cert_pem);

}  // namespace atl::rpc
