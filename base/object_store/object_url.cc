#include "base/object_store/object_url.h"

#include <algorithm>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/host_port/host_port.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

constexpr size_t kUrlBytesMax = 8 << 10;
constexpr char kForms[] =
    "file:///DIR, s3://BUCKET/PREFIX or https://HOST/PATH";

absl::Status Malformed(absl::string_view url, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::CHexEscape(RedactUrl(url)), "\": ", why));
}

bool IsUnreserved(unsigned char c) {
  return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' || c == '~';
}

absl::Status CheckBucket(absl::string_view url, absl::string_view bucket) {
  const bool is_right =
      bucket.size() >= 3 && bucket.size() <= 255 &&
      std::all_of(bucket.begin(), bucket.end(),
                  [](unsigned char c) { return IsUnreserved(c) && c != '~'; });
  if (is_right) return absl::OkStatus();
  return Malformed(url,
                   "a bucket has 3 to 255 letters, digits, dots, dashes and "
                   "underscores: s3://BUCKET/PREFIX");
}

absl::Status ParseAuthority(absl::string_view url, absl::string_view authority,
                            HttpUrl& out) {
  if (absl::StrContains(authority, "@")) {
    return Malformed(url, "a URL must not have a user name or a password");
  }
  std::string with_port(authority);
  const size_t bracket = authority.find(']');
  const size_t colon = authority.rfind(':');
  if (colon == absl::string_view::npos ||
      (bracket != absl::string_view::npos && colon < bracket)) {
    with_port += ":0";
  } else if (absl::EndsWith(authority, ":0")) {
    return Malformed(url, "port 0 is no port");
  }
  const absl::StatusOr<HostPort> address = ParseHostPort(with_port);
  if (!address.ok()) return Malformed(url, "it has no HOST or HOST:PORT");
  out.host = absl::AsciiStrToLower(address->host);
  out.port = address->port;
  if (out.port == (out.is_https ? 443 : 80)) out.port = 0;
  return absl::OkStatus();
}

}  // namespace

std::string HttpUrl::authority() const {
  if (port != 0) return JoinHostPort(host, port);
  return absl::StrContains(host, ":") ? absl::StrCat("[", host, "]") : host;
}

std::string HttpUrl::origin() const {
  return absl::StrCat(is_https ? "https://" : "http://", authority());
}

absl::StatusOr<HttpUrl> ParseHttpUrl(absl::string_view url,
                                     PlaintextHosts plaintext) {
  if (url.size() > kUrlBytesMax) {
    return Malformed(url.substr(0, 100), "a URL has at most 8 KiB");
  }
  for (const unsigned char c : url) {
    if (c <= ' ' || c >= 0x7f || c == '"' || c == '<' || c == '>' ||
        c == '\\') {
      return Malformed(url,
                       "percent-encode spaces, quotes and characters that are "
                       "not ASCII");
    }
  }
  HttpUrl out;
  absl::string_view rest = url;
  out.is_https = absl::ConsumePrefix(&rest, "https://");
  if (!out.is_https && !absl::ConsumePrefix(&rest, "http://")) {
    return Malformed(url, "it does not begin with https://");
  }
  if (absl::StrContains(rest, "#")) {
    return Malformed(url, "a URL must not have a fragment (\"#\")");
  }
  const size_t path_begin = std::min(rest.find_first_of("/?"), rest.size());
  RETURN_IF_ERROR(ParseAuthority(url, rest.substr(0, path_begin), out));
  const bool may_be_plaintext =
      plaintext == PlaintextHosts::kAny || IsLoopbackHost(out.host) ||
      (plaintext == PlaintextHosts::kContainers &&
       absl::c_linear_search(kContainerHosts, out.host));
  if (!out.is_https && !may_be_plaintext) {
    return Malformed(url, "http:// is for loopback hosts; use https://");
  }
  rest.remove_prefix(path_begin);
  const size_t query_begin = std::min(rest.find('?'), rest.size());
  out.path = std::string(rest.substr(0, query_begin));
  if (query_begin < rest.size()) {
    out.query = std::string(rest.substr(query_begin + 1));
  }
  return out;
}

absl::StatusOr<ObjectUrl> ParseObjectUrl(absl::string_view url,
                                         PlaintextHosts plaintext) {
  ObjectUrl out;
  absl::string_view rest = url;
  if (absl::ConsumePrefix(&rest, "file://")) {
    out.store = ObjectUrl::Store::kFile;
    const std::optional<std::string> path = PercentDecode(rest);
    if (!path.has_value() || !absl::StartsWith(*path, "/") ||
        absl::StrContains(*path, absl::string_view("\0", 1))) {
      return Malformed(url,
                       "file:// needs an absolute path, file:///DIR; write "
                       "\"%\" as %25");
    }
    out.path = *path;
    return out;
  }
  if (absl::ConsumePrefix(&rest, "s3://")) {
    out.store = ObjectUrl::Store::kS3;
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(rest, absl::MaxSplits('/', 1));
    RETURN_IF_ERROR(CheckBucket(url, parts.first));
    out.bucket = std::string(parts.first);
    out.path = std::string(parts.second);
    return out;
  }
  if (!absl::StartsWith(url, "https://") && !absl::StartsWith(url, "http://")) {
    return Malformed(url, absl::StrCat("a URL has the form ", kForms));
  }
  out.store = ObjectUrl::Store::kHttp;
  ASSIGN_OR_RETURN(out.http, ParseHttpUrl(url, plaintext));
  return out;
}

std::string RedactUrl(absl::string_view url) {
  const bool is_http =
      absl::StartsWith(url, "https://") || absl::StartsWith(url, "http://");
  if (!is_http) return std::string(url);
  const size_t host_begin = url.find("://") + 3;
  url = url.substr(0, url.find_first_of("?#", host_begin));
  const size_t host_end = std::min(url.find('/', host_begin), url.size());
  const size_t at = url.substr(0, host_end).rfind('@');
  if (at == absl::string_view::npos || at < host_begin) return std::string(url);
  return absl::StrCat(url.substr(0, host_begin), url.substr(at + 1));
}

std::string JoinObjectName(absl::string_view prefix, absl::string_view name) {
  if (name.empty() || prefix.empty() || absl::EndsWith(prefix, "/")) {
    return absl::StrCat(prefix, name);
  }
  return absl::StrCat(prefix, "/", name);
}

absl::Status CheckRelativeName(absl::string_view name) {
  if (name.empty()) return absl::OkStatus();
  for (const absl::string_view part : absl::StrSplit(name, '/')) {
    if (part.empty() || part == "." || part == ".." ||
        absl::StrContains(part, absl::string_view("\0", 1))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", absl::CHexEscape(name),
          "\" is not a name of an object: a part between slashes is empty, "
          "\".\" or \"..\""));
    }
  }
  return absl::OkStatus();
}

std::string PercentEncode(absl::string_view bytes, bool keeps_slash) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(bytes.size());
  for (const unsigned char c : bytes) {
    if (IsUnreserved(c) || (c == '/' && keeps_slash)) {
      out.push_back(static_cast<char>(c));
    } else {
      out.push_back('%');
      out.push_back(kDigits[c >> 4]);
      out.push_back(kDigits[c & 15]);
    }
  }
  return out;
}

std::string EncodeQuery(const QueryParameters& parameters) {
  QueryParameters encoded;
  encoded.reserve(parameters.size());
  for (const auto& [name, value] : parameters) {
    encoded.emplace_back(PercentEncode(name, false),
                         PercentEncode(value, false));
  }
  // Pairs, not "name=value": "-" sorts before "=", but "a" before "a-b".
  std::sort(encoded.begin(), encoded.end());
  std::string out;
  for (const auto& [name, value] : encoded) {
    absl::StrAppend(&out, out.empty() ? "" : "&", name, "=", value);
  }
  return out;
}

}  // namespace atl
