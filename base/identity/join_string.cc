#include "base/identity/join_string.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/codec/crc32c.h"
#include "base/host_port/host_port.h"
#include "base/layout/ids.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

constexpr absl::string_view kScheme = "atoll://";
constexpr absl::string_view kVersion = "atj1_";
constexpr size_t kVersionDigit = 3;  // Its place in kVersion.
constexpr int kDefaultPort = 443;
constexpr size_t kTokenIdBytes = 12;
constexpr size_t kSecretBytesMin = 16;
constexpr size_t kSecretBytesMax = 64;
constexpr size_t kPinBytes = 32;
constexpr size_t kCrcDigits = 8;
// Longer than any join string.
constexpr size_t kTextBytesMax = 4096;

absl::Status Wrong(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("the join string ", why));
}

absl::Status Incomplete() {
  return absl::OutOfRangeError(
      "the join string is incomplete: it must end with a dot and 8 digits of "
      "0-9 and a-f; copy all of it");
}

// In UTF-8: spaces that do not break a line, or have no width.
constexpr absl::string_view kSpaces[] = {
    "\u00a0", "\u2007", "\u200b", "\u200c", "\u200d",
    "\u202f", "\u2060", "\ufeff"};
constexpr absl::string_view kQuotes[] = {
    "\"", "'", "`", "<", ">", "\u201c", "\u201d", "\u2018", "\u2019",
    "\u00ab", "\u00bb"};

// Without what mail programs and people add to a string.
std::string Clean(absl::string_view text) {
  std::string kept;
  std::copy_if(text.begin(), text.end(), std::back_inserter(kept),
               [](unsigned char c) { return !absl::ascii_isspace(c); });
  for (const absl::string_view space : kSpaces) {
    kept = absl::StrReplaceAll(kept, {{space, ""}});
  }
  absl::string_view rest = kept;
  const auto strip = [&rest](absl::string_view quote) {
    return absl::ConsumePrefix(&rest, quote) ||
           absl::ConsumeSuffix(&rest, quote);
  };
  while (std::any_of(std::begin(kQuotes), std::end(kQuotes), strip)) {
  }
  return std::string(rest);
}

// False if `text` is not what WebSafeBase64Escape makes.
bool Decode(absl::string_view text, std::string& bytes) {
  return absl::WebSafeBase64Unescape(text, &bytes) &&
         absl::WebSafeBase64Escape(bytes) == text;
}

std::string Checksum(absl::string_view text) {
  return absl::StrCat(absl::Hex(codec::Crc32c(text), absl::kZeroPad8));
}

// "host", "host:port" or "[v6]:port".
absl::StatusOr<std::string> ParseGate(absl::string_view text) {
  const size_t after_host = absl::StartsWith(text, "[") ? text.find(']') : 0;
  const bool has_port = after_host != absl::string_view::npos &&
                        absl::StrContains(text.substr(after_host), ':');
  const absl::StatusOr<HostPort> gate = ParseHostPort(
      has_port ? std::string(text) : absl::StrCat(text, ":", kDefaultPort));
  if (!gate.ok() || gate->port == 0) {
    return Wrong("names no gate: after atoll:// it needs HOST:PORT/RUN");
  }
  return JoinHostPort(gate->host, gate->port);
}

// Reads ID.SECRET.PIN.CRC, which follow kVersion.
absl::Status ParseToken(absl::string_view text, JoinString& join) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '.');
  if (parts.size() < 4) return Incomplete();
  if (parts.size() > 4) return Wrong("has text after its end");
  if (!IsTokenId(parts[0])) {
    return Wrong("has a malformed token id, between atj1_ and the first dot");
  }
  if (!Decode(parts[1], join.token_secret) ||
      !IsTokenSecretSize(join.token_secret.size())) {
    return Wrong("has a malformed secret, between the first and second dot");
  }
  if (!IsPin(parts[2])) {
    return Wrong("has a malformed pin, between the second and third dot");
  }
  if (parts[3].size() < kCrcDigits) return Incomplete();
  if (!IsLowerHex(parts[3], kCrcDigits)) {
    return Wrong("has text after its end, or a malformed checksum");
  }
  join.token_id = std::string(parts[0]);
  join.pin = std::string(parts[2]);
  return absl::OkStatus();
}

}  // namespace

bool IsTokenId(absl::string_view text) {
  return text.size() == kTokenIdBytes &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_isdigit(c) || absl::ascii_islower(c);
         });
}

bool IsTokenSecretSize(size_t size_bytes) {
  return size_bytes >= kSecretBytesMin && size_bytes <= kSecretBytesMax;
}

bool IsPin(absl::string_view text) {
  std::string bytes;
  return Decode(text, bytes) && bytes.size() == kPinBytes;
}

std::string FormatJoinString(const JoinString& join) {
  const std::string token =
      absl::StrCat(kVersion, join.token_id, ".",
                   absl::WebSafeBase64Escape(join.token_secret), ".", join.pin);
  return absl::StrCat(kScheme, join.gate_address, "/", join.run_id, "#", token,
                      ".", Checksum(token));
}

bool BeginsJoinString(absl::string_view text) {
  return absl::StartsWith(Clean(text), kScheme);
}

absl::StatusOr<JoinString> ParseJoinString(absl::string_view text) {
  if (text.size() > kTextBytesMax) return Wrong("is too long");
  const std::string kept = Clean(text);
  absl::string_view rest = kept;
  if (!absl::ConsumePrefix(&rest, kScheme)) {
    if (absl::StartsWith(kScheme, kept)) return Incomplete();
    return Wrong("must begin with atoll://");
  }
  const size_t hash = rest.find('#');
  if (hash == absl::string_view::npos) return Incomplete();
  const absl::string_view place = rest.substr(0, hash);
  const absl::string_view token = rest.substr(hash + 1);
  JoinString join;
  const size_t slash = place.find('/');
  ASSIGN_OR_RETURN(join.gate_address, ParseGate(place.substr(0, slash)));
  if (slash == absl::string_view::npos ||
      !ValidateId("", place.substr(slash + 1)).ok()) {
    return Wrong("names no run: before # it needs a slash and the run's id");
  }
  join.run_id = std::string(place.substr(slash + 1));
  if (!absl::StartsWith(token, kVersion)) {
    if (absl::StartsWith(token, kVersion.substr(0, kVersionDigit)) &&
        token.size() > kVersionDigit && token[kVersionDigit] != '1') {
      return Wrong("is of a newer version: upgrade this program");
    }
    if (absl::StartsWith(kVersion, token)) return Incomplete();
    return Wrong("must have atj1_ after its #");
  }
  RETURN_IF_ERROR(ParseToken(token.substr(kVersion.size()), join));
  const size_t checked = token.size() - kCrcDigits - 1;
  if (Checksum(token.substr(0, checked)) != token.substr(checked + 1)) {
    return Wrong(
        "does not match its checksum: a character is wrong; copy it again");
  }
  return join;
}

}  // namespace atl
