// The directory of a CA, in which nobody changes a key. Its root signs a
// service CA and an island CA; nothing else needs the root's key, which may be
// kept elsewhere. The older kind of CA is one certificate and one key, ca.crt
// and ca.key, which sign everything. A root may have these names too.
//
// A CA is there once its root's certificate is: that file is written last.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/rpc/certificates/authority.h"

namespace atl::cli {

// How far back certificates begin, for clocks that differ.
inline constexpr absl::Duration kBeginBack = absl::Minutes(5);

struct Ca {
  rpc::KeyAndCertificate root;     // The key is empty if it is elsewhere.
  rpc::KeyAndCertificate service;  // Signs certificates. Older kind: the root.
  rpc::KeyAndCertificate island;   // Older kind: empty.
  std::string crl_pem;    // Its revoked certificates; empty: none.
  std::string directory;  // Empty: it was made in memory.
  std::string root_cert_file = "ca.crt";  // Its name in the directory.

  bool has_island_ca() const { return !island.cert_pem.empty(); }
};

// How a directory came to hold its CA.
enum class CaOrigin { kMade, kCopied, kKept };

// Leaves the CA that `directory` holds. Else copies the one of `existing`, if
// that directory holds one, with what it has issued and revoked. Else makes one for `lifetime`.
// FAILED_PRECONDITION: a directory holds a part of a CA. UNAUTHENTICATED: the
// CA has expired. INVALID_ARGUMENT: the files are not a CA's certificates and
// keys. Otherwise as the file system.
absl::StatusOr<CaOrigin> InitCa(const std::string& directory,
                                const std::string& existing, absl::Time now,
                                absl::Duration lifetime);

// Reads the CA of `directory`.
// NOT_FOUND: it holds none. Otherwise as InitCa.
absl::StatusOr<Ca> ReadCa(const std::string& directory, absl::Time now);

// Writes new certificates of the CAs, which end together after `lifetime`, for
// the same keys: certificates that they have signed stay valid. They may have
// expired. Returns the names of the written files.
// FAILED_PRECONDITION: also: the root's key is elsewhere. Otherwise as ReadCa.
absl::StatusOr<std::vector<std::string>> RenewAuthorities(
    const std::string& directory, absl::Time now, absl::Duration lifetime);

// A line for each certificate of `ca` that has less than a third of its life
// left: until when it is valid, and what to do.
std::vector<std::string> DescribeExpiry(const Ca& ca,
                                        const std::string& directory,
                                        absl::Time now);

}  // namespace atl::cli
