// URLs of objects and of HTTP servers. Pure. Thread-safe.
//
//   file:///DIR/FILE            a file or a directory; %XX is decoded
//   s3://BUCKET/PREFIX          the prefix is taken as it is, without decoding
//   https://HOST[:PORT]/PATH    PATH and ?QUERY stay encoded
//   http://HOST[:PORT]/PATH     loopback hosts only
//
// An error never repeats a query or a password: a presigned URL is a secret.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace atl {

// http:// or https://.
struct HttpUrl {
  bool is_https = true;
  std::string host;   // Without brackets.
  int port = 0;       // 0: the scheme's own.
  std::string path;   // Encoded; empty or begins with "/".
  std::string query;  // Encoded, without "?".

  // "host" or "host:port", as in a Host header: the scheme's port is left out.
  std::string authority() const;
  // "https://host:port", without a path.
  std::string origin() const;
};

// Link-local addresses at which ECS and EKS give containers credentials.
inline constexpr absl::string_view kContainerHosts[] = {
    "169.254.170.2", "169.254.170.23", "fd00:ec2::23"};

// The hosts that http:// may name.
enum class PlaintextHosts {
  kLoopback,
  kContainers,  // And kContainerHosts.
  kAny,         // A DialPolicy judges them, once the address is known.
};

// INVALID_ARGUMENT: another scheme, a user name, a fragment, characters that
// must be encoded, or http:// to a host that is not in `plaintext`.
absl::StatusOr<HttpUrl> ParseHttpUrl(
    absl::string_view url, PlaintextHosts plaintext = PlaintextHosts::kLoopback);

struct ObjectUrl {
  enum class Store { kFile, kS3, kHttp };

  Store store = Store::kFile;
  std::string bucket;  // kS3.
  std::string path;    // kFile: absolute. kS3: a key or prefix, maybe empty.
  HttpUrl http;        // kHttp.
};

// INVALID_ARGUMENT: not one of the forms above. The message lists them.
absl::StatusOr<ObjectUrl> ParseObjectUrl(
    absl::string_view url, PlaintextHosts plaintext = PlaintextHosts::kLoopback);

// `url` without its query and without a password: for messages.
std::string RedactUrl(absl::string_view url);

// `prefix`/`name`, with one slash if `prefix` does not end in one. `prefix` if
// `name` is empty; `name` if `prefix` is empty.
std::string JoinObjectName(absl::string_view prefix, absl::string_view name);

// Checks a name for stores whose paths have directories: no part of it is
// empty, "." or "..". The empty name is right.
absl::Status CheckRelativeName(absl::string_view name);

// RFC 3986: encodes all bytes except unreserved characters, and "/" if
// `keeps_slash`.
std::string PercentEncode(absl::string_view bytes, bool keeps_slash);

// Names and values of headers.
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// Names and values, decoded, in any order; names may repeat.
using QueryParameters = std::vector<std::pair<std::string, std::string>>;

// The query in SigV4's canonical form: encoded, sorted by encoded name, then
// by encoded value. Every name has a "=".
std::string EncodeQuery(const QueryParameters& parameters);

}  // namespace atl
