#include "base/object_store/sigv4.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstdint>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/codec/sha256.h"
#include "base/status/check.h"

namespace atl {
namespace {

constexpr char kAlgorithm[] = "AWS4-HMAC-SHA256";
constexpr char kUnsigned[] = "UNSIGNED-PAYLOAD";

std::string Hash(absl::string_view bytes) {
  return codec::ToHex(codec::ComputeSha256(bytes));
}

std::string Hmac(absl::string_view key, absl::string_view text) {
  unsigned char out[EVP_MAX_MD_SIZE];
  unsigned out_bytes = 0;
  CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
             reinterpret_cast<const unsigned char*>(text.data()), text.size(),
             out, &out_bytes) != nullptr);
  return std::string(reinterpret_cast<const char*>(out), out_bytes);
}

// Where and when a signature is valid.
struct Scope {
  Scope(absl::Time now, absl::string_view region)
      : date(absl::FormatTime("%Y%m%d", now, absl::UTCTimeZone())),
        time(absl::FormatTime("%Y%m%dT%H%M%SZ", now, absl::UTCTimeZone())),
        region(region),
        text(absl::StrCat(date, "/", region, "/s3/aws4_request")) {}

  const std::string date;
  const std::string time;
  const std::string region;
  const std::string text;
};

// Headers by lower-case name, with single spaces inside of values.
using CanonicalHeaders = std::map<std::string, std::string>;

CanonicalHeaders MakeCanonical(const S3Request& request) {
  CanonicalHeaders out = {{"host", request.host}};
  for (const auto& [name, value] : request.headers) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(value, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    out[absl::AsciiStrToLower(name)] = absl::StrJoin(words, " ");
  }
  return out;
}

std::string JoinNames(const CanonicalHeaders& headers) {
  return absl::StrJoin(headers, ";", [](std::string* out, const auto& header) {
    absl::StrAppend(out, header.first);
  });
}

// The signature over a request with `headers`, in hex.
std::string Sign(const S3Request& request, const CanonicalHeaders& headers,
                 absl::string_view payload_hash, const Scope& scope,
                 const AwsCredentials& credentials) {
  std::string canonical =
      absl::StrCat(request.method, "\n", PercentEncode(request.path, true),
                   "\n", EncodeQuery(request.query), "\n");
  for (const auto& [name, value] : headers) {
    absl::StrAppend(&canonical, name, ":", value, "\n");
  }
  absl::StrAppend(&canonical, "\n", JoinNames(headers), "\n", payload_hash);
  const std::string to_sign = absl::StrCat(kAlgorithm, "\n", scope.time, "\n",
                                           scope.text, "\n", Hash(canonical));
  std::string key = absl::StrCat("AWS4", credentials.secret_access_key);
  for (const absl::string_view part :
       {absl::string_view(scope.date), absl::string_view(scope.region),
        absl::string_view("s3"), absl::string_view("aws4_request")}) {
    key = Hmac(key, part);
  }
  return absl::BytesToHexString(Hmac(key, to_sign));
}

}  // namespace

std::string GetTarget(const S3Request& request) {
  const std::string query = EncodeQuery(request.query);
  return absl::StrCat(PercentEncode(request.path, true),
                      query.empty() ? "" : "?", query);
}

HttpHeaders SignHeaders(const S3Request& request,
                        const AwsCredentials& credentials,
                        absl::string_view region, absl::Time now) {
  const Scope scope(now, region);
  S3Request signed_request = request;
  HttpHeaders& headers = signed_request.headers;
  const std::string payload_hash = Hash(request.body);
  headers.emplace_back("x-amz-date", scope.time);
  headers.emplace_back("x-amz-content-sha256", payload_hash);
  if (!credentials.session_token.empty()) {
    headers.emplace_back("x-amz-security-token", credentials.session_token);
  }
  const CanonicalHeaders canonical = MakeCanonical(signed_request);
  const std::string signature =
      Sign(signed_request, canonical, payload_hash, scope, credentials);
  headers.emplace_back(
      "Authorization",
      absl::StrCat(kAlgorithm, " Credential=", credentials.access_key_id, "/",
                   scope.text, ", SignedHeaders=", JoinNames(canonical),
                   ", Signature=", signature));
  return headers;
}

std::string Presign(const S3Request& request, const AwsCredentials& credentials,
                    absl::string_view region, absl::Time now,
                    absl::Duration lifetime) {
  const Scope scope(now, region);
  const CanonicalHeaders canonical = MakeCanonical(request);
  S3Request presigned = request;
  QueryParameters& query = presigned.query;
  query.emplace_back("X-Amz-Algorithm", kAlgorithm);
  query.emplace_back("X-Amz-Credential",
                     absl::StrCat(credentials.access_key_id, "/", scope.text));
  query.emplace_back("X-Amz-Date", scope.time);
  const int64_t lifetime_s =
      std::clamp<int64_t>(absl::ToInt64Seconds(lifetime), 1,
                          absl::ToInt64Seconds(absl::Hours(168)));
  query.emplace_back("X-Amz-Expires", absl::StrCat(lifetime_s));
  query.emplace_back("X-Amz-SignedHeaders", JoinNames(canonical));
  if (!credentials.session_token.empty()) {
    query.emplace_back("X-Amz-Security-Token", credentials.session_token);
  }
  return absl::StrCat(
      GetTarget(presigned), "&X-Amz-Signature=",
      Sign(presigned, canonical, kUnsigned, scope, credentials));
}

}  // namespace atl
