// Compares with what botocore signs: testdata/make_sigv4_golden.py.
#include "base/object_store/sigv4.h"

#include <cstdint>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace atl {
namespace {

using nlohmann::json;

const json& Cases() {
  static const json* const cases = [] {
    std::ifstream file("base/object_store/testdata/sigv4_golden.json");
    return new json(json::parse(file).at("cases"));
  }();
  return *cases;
}

HttpHeaders ReadPairs(const json& pairs) {
  HttpHeaders out;
  for (const json& pair : pairs) out.emplace_back(pair.at(0), pair.at(1));
  return out;
}

// A case of the golden file. Owns the body that `request` shows.
struct Case {
  explicit Case(const json& from)
      : body(from.at("body")),
        region(from.at("region")),
        want(from.at("want")),
        lifetime(absl::Seconds(from.at("lifetime_s").get<int64_t>())) {
    request = {from.at("method"),
               from.at("host"),
               from.at("path"),
               ReadPairs(from.at("query")),
               ReadPairs(from.at("headers")),
               body};
    const json& keys = from.at("credentials");
    credentials = {keys.at(0), keys.at(1), keys.at(2)};
    std::string error;
    EXPECT_TRUE(absl::ParseTime(
        absl::RFC3339_full, from.at("time").get<std::string>(), &now, &error))
        << error;
  }

  const std::string body;
  const std::string region;
  const std::string want;
  const absl::Duration lifetime;
  S3Request request;
  AwsCredentials credentials;
  absl::Time now;
};

std::string FindHeader(const HttpHeaders& headers, const std::string& name) {
  for (const auto& [found, value] : headers) {
    if (found == name) return value;
  }
  return "";
}

TEST(Sigv4Test, HeadersAreThoseOfBotocore) {
  int case_count = 0;
  for (const json& from : Cases()) {
    const Case c(from);
    if (c.lifetime > absl::ZeroDuration()) continue;
    const HttpHeaders headers =
        SignHeaders(c.request, c.credentials, c.region, c.now);
    EXPECT_EQ(FindHeader(headers, "Authorization"), c.want) << from;
    ++case_count;
  }
  EXPECT_GE(case_count, 40);
}

TEST(Sigv4Test, PresignedUrlsAreThoseOfBotocore) {
  int case_count = 0;
  for (const json& from : Cases()) {
    const Case c(from);
    if (c.lifetime == absl::ZeroDuration()) continue;
    const std::string target =
        Presign(c.request, c.credentials, c.region, c.now, c.lifetime);
    EXPECT_TRUE(
        absl::EndsWith(target, absl::StrCat("&X-Amz-Signature=", c.want)))
        << from << target;
    ++case_count;
  }
  EXPECT_GE(case_count, 10);
}

TEST(Sigv4Test, SendsTheHashOfTheBodyAndTheToken) {
  const S3Request request = {"PUT", "host", "/key", {}, {{"A", "b"}}, "abc"};
  const HttpHeaders headers =
      SignHeaders(request, {"id", "secret", "token"}, "region",
                  absl::FromUnixSeconds(1'700'000'000));
  EXPECT_EQ(FindHeader(headers, "A"), "b");
  EXPECT_EQ(FindHeader(headers, "x-amz-date"), "20231114T221320Z");
  EXPECT_EQ(FindHeader(headers, "x-amz-security-token"), "token");
  EXPECT_EQ(FindHeader(headers, "x-amz-content-sha256"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sigv4Test, ThePayloadChangesTheSignature) {
  S3Request request = {"PUT", "host", "/key", {}, {}, "abc"};
  const absl::Time now = absl::UnixEpoch();
  const auto sign = [&] {
    return FindHeader(SignHeaders(request, {"id", "secret"}, "region", now),
                      "Authorization");
  };
  const std::string first = sign();
  request.body = "abd";
  EXPECT_NE(sign(), first);
}

TEST(Sigv4Test, TheTargetIsEncodedAsItIsSigned) {
  const S3Request request = {
      "GET", "host", "/b//a b/\xC3\xA9?", {{"z", ""}, {"a", "/"}}, {}, ""};
  EXPECT_EQ(GetTarget(request), "/b//a%20b/%C3%A9%3F?a=%2F&z=");
  EXPECT_EQ(GetTarget({"GET", "host", "/"}), "/");
}

TEST(Sigv4Test, ALifetimeIsOneSecondToSevenDays) {
  const auto presign = [](absl::Duration lifetime) {
    return Presign({"GET", "host", "/"}, {"id", "secret"}, "region",
                   absl::UnixEpoch(), lifetime);
  };
  EXPECT_TRUE(
      absl::StrContains(presign(absl::ZeroDuration()), "&X-Amz-Expires=1&"));
  EXPECT_TRUE(absl::StrContains(presign(absl::InfiniteDuration()),
                                "&X-Amz-Expires=604800&"));
}

}  // namespace
}  // namespace atl
