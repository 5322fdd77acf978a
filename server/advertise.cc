#include "server/advertise.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/host_port/host_port.h"
#include "base/status/status_macros.h"

namespace atl::server {
namespace {

template <typename... Parts>
absl::Status Invalid(absl::string_view advertise, const Parts&... parts) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", advertise, "\": ", parts...));
}

// False unless `text` consists of decimal digits only.
bool ParseNumber(absl::string_view text, int64_t& number) {
  for (const char c : text) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;
  }
  // Far below an overflow, and far above any port.
  return text.size() <= 15 && absl::SimpleAtoi(text, &number);
}

absl::StatusOr<int64_t> FindOrdinal(absl::string_view advertise,
                                    absl::string_view server_id) {
  size_t begin = server_id.size();
  while (begin > 0 && absl::ascii_isdigit(
                          static_cast<unsigned char>(server_id[begin - 1]))) {
    --begin;
  }
  int64_t ordinal = 0;
  if (!ParseNumber(server_id.substr(begin), ordinal)) {
    return Invalid(advertise, "{ordinal} needs a --server-id that ends in a ",
                   "number, such as server-0; it is ", server_id);
  }
  return ordinal;
}

// The value of the placeholder {`name`}.
absl::StatusOr<std::string> Resolve(absl::string_view name,
                                    absl::string_view advertise,
                                    absl::string_view server_id, int port) {
  if (name == "server-id") return std::string(server_id);
  if (name == "port") return absl::StrCat(port);
  absl::string_view plus = name;
  int64_t added = 0;
  if (absl::ConsumePrefix(&plus, "ordinal") &&
      (plus.empty() ||
       (absl::ConsumePrefix(&plus, "+") && ParseNumber(plus, added)))) {
    ASSIGN_OR_RETURN(const int64_t ordinal, FindOrdinal(advertise, server_id));
    return absl::StrCat(ordinal + added);
  }
  return Invalid(advertise, "{", name, "} is none of {server-id}, {ordinal}, ",
                 "{ordinal+N} and {port}");
}

}  // namespace

absl::StatusOr<std::string> ResolveAdvertise(absl::string_view advertise,
                                             absl::string_view server_id,
                                             int port) {
  std::string address;
  absl::string_view left = advertise;
  while (!left.empty()) {
    const size_t brace = left.find_first_of("{}");
    absl::StrAppend(&address, left.substr(0, brace));
    if (brace == absl::string_view::npos) break;
    left.remove_prefix(brace);
    const size_t end = left.find('}');
    if (left[0] == '}' || end == absl::string_view::npos) {
      return Invalid(advertise, "the brace at \"", left, "\" has no partner");
    }
    ASSIGN_OR_RETURN(
        const std::string value,
        Resolve(left.substr(1, end - 1), advertise, server_id, port));
    absl::StrAppend(&address, value);
    left.remove_prefix(end + 1);
  }
  const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
  if (!parsed.ok() || parsed->host.empty() || parsed->port == 0) {
    return Invalid(advertise, "islands cannot dial ", address,
                   ": give HOST:PORT with a port from 1 to 65535");
  }
  return address;
}

}  // namespace atl::server
