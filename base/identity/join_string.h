// The join string: all that a stranger needs to join one run.
//
//   atoll://HOST:PORT/RUN#atj1_ID.SECRET.PIN.CRC
//
//   HOST:PORT  the gate; ":PORT" may be missing and is then 443; an IPv6
//              address has brackets
//   RUN        the run's id
//   ID         the token's id, [a-z0-9]{12}
//   SECRET     the token's secret, 16 to 64 bytes, base64url without padding
//   PIN        SHA-256 of the key (SubjectPublicKeyInfo, DER) of the root CA,
//              base64url without padding, 43 characters
//   CRC        CRC-32C of "atj1_ID.SECRET.PIN", 8 lower-case hex digits
//
// The checksum finds typing errors only: it does not protect from attackers.
// White space and line breaks, which mail programs insert, do not count, nor do
// no-break spaces, and quotes or <> around the string.
//
// Pure. Thread-safe.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace atl {

struct JoinString {
  std::string gate_address;  // host:port
  std::string run_id;
  std::string token_id;
  std::string token_secret;  // The bytes.
  std::string pin;           // As in the text.

  bool operator==(const JoinString&) const = default;
};

// True for [a-z0-9]{12}.
bool IsTokenId(absl::string_view text);

// True if the secret of a token may have so many bytes: 16 to 64.
bool IsTokenSecretSize(size_t size_bytes);

// True for base64url of 32 bytes, without padding.
bool IsPin(absl::string_view text);

// Requires: fields as above.
std::string FormatJoinString(const JoinString& join);

// True if `text` is a join string, or the beginning of one that has its scheme.
bool BeginsJoinString(absl::string_view text);

// INVALID_ARGUMENT: `text` is not a join string. OUT_OF_RANGE: nor is it, but
// more text could complete it. The message says which part is wrong, and repeats
// no part: it may be the secret.
absl::StatusOr<JoinString> ParseJoinString(absl::string_view text);

}  // namespace atl
