// Data tokens: a gate gives one to each island with its certificate. An HTTPS
// server of the run's data accepts it as a bearer token.
//
//   atd1.CLUSTER_ID.RUN_UID.ROLE.NAME.END.SIGNATURE
//
// END is in seconds since 1970. SIGNATURE is base64url: the island CA's, with
// SHA-256, over kDataTokenDomain and all that stands before its dot. The text
// has nothing that a URL or a header must escape.
//
// Pure. Thread-safe.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/identity/identity.h"

namespace atl::rpc {

// Before what is signed. A certificate begins with another byte, so that a
// token's signature is never one of a certificate.
inline constexpr absl::string_view kDataTokenDomain = "atoll data token 1\n";
inline constexpr size_t kDataTokenBytesMax = 2048;

struct DataToken {
  std::string cluster_id;
  std::string run_uid;
  Role role = Role::kIsland;  // kIsland or kReader.
  std::string name;           // The island's or the reader's.
  absl::Time end;             // Expiry, in whole seconds.
};

// Requires: ids as base/identity accepts them.
// INVALID_ARGUMENT: `ca_key_pem` is no private key, or cannot sign.
absl::StatusOr<std::string> SignDataToken(const DataToken& token,
                                          const std::string& ca_key_pem);

// The token of `text`, if the key of a certificate of `ca_pem` signed it and it
// has not ended at `now`.
// UNAUTHENTICATED: it is not such a token; the message says why.
absl::StatusOr<DataToken> VerifyDataToken(absl::string_view text,
                                          const std::string& ca_pem,
                                          absl::Time now);

}  // namespace atl::rpc
