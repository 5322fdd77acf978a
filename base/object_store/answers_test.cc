#include "base/object_store/answers.h"

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/object_store/xml.h"
#include "base/status/refusal.h"
#include "base/testing/mutator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Code = absl::StatusCode;

constexpr absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

constexpr char kList[] = R"(<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <Name>bucket</Name><EncodingType>url</EncodingType>
  <IsTruncated>true</IsTruncated>
  <NextContinuationToken>a/b=&amp;</NextContinuationToken>
  <Contents><Key>a+b%2Bc%C3%A9</Key><ETag>&quot;e1&quot;</ETag>
    <Size>12</Size></Contents>
  <Contents><Key>d</Key><Size>0</Size></Contents>
</ListBucketResult>)";

constexpr char kSts[] =
    R"(<AssumeRoleWithWebIdentityResponse xmlns="https://sts/doc/">
  <AssumeRoleWithWebIdentityResult><Credentials>
    <AccessKeyId>id</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>
    <SessionToken>token</SessionToken>
    <Expiration>2026-01-02T03:04:05Z</Expiration>
  </Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>)";

constexpr char kContainer[] =
    R"({"AccessKeyId": "id", "SecretAccessKey": "secret", "Token": "token",
        "Expiration": "2026-01-02T03:04:05.5Z", "RoleArn": 7})";

std::string MakeError(const std::string& code, const std::string& message) {
  return absl::StrCat("<Error><Code>", code, "</Code><Message>", message,
                      "</Message></Error>");
}

absl::Status Convert(int code, const std::string& server_code = "",
                     const std::map<std::string, std::string>& headers = {}) {
  return ToStatus(
      {code, headers,
       server_code.empty() ? "" : MakeError(server_code, "the text")},
      "GET url", kNow);
}

// --- Errors ------------------------------------------------------------------

TEST(AnswersTest, EachHttpStatusHasItsCode) {
  EXPECT_EQ(Convert(400).code(), Code::kFailedPrecondition);
  EXPECT_EQ(Convert(401).code(), Code::kPermissionDenied);
  EXPECT_EQ(Convert(403).code(), Code::kPermissionDenied);
  EXPECT_EQ(Convert(404).code(), Code::kNotFound);
  EXPECT_EQ(Convert(409).code(), Code::kAborted);
  EXPECT_EQ(Convert(412).code(), Code::kAlreadyExists);
  EXPECT_EQ(Convert(416).code(), Code::kOutOfRange);
  EXPECT_EQ(Convert(501).code(), Code::kUnimplemented);
  EXPECT_EQ(Convert(507).code(), Code::kResourceExhausted);
  for (const int code : {408, 429, 500, 502, 503, 504}) {
    EXPECT_EQ(Convert(code).code(), Code::kUnavailable) << code;
  }
  EXPECT_EQ(Convert(400, "RequestTimeout").code(), Code::kUnavailable);
  EXPECT_EQ(Convert(400, "ExpiredToken").code(), Code::kPermissionDenied);
}

TEST(AnswersTest, AMessageNamesStatusCodeTextAndRemedy) {
  EXPECT_THAT(
      std::string(Convert(403, "SignatureDoesNotMatch").message()),
      AllOf(HasSubstr("GET url: HTTP 403: SignatureDoesNotMatch: the text"),
            HasSubstr("secret key")));
  EXPECT_THAT(std::string(Convert(403, "RequestTimeTooSkewed",
                                  {{"date", "Mon, 01 Jan 2024"}})
                              .message()),
              AllOf(HasSubstr("clock"), HasSubstr("Mon, 01 Jan 2024")));
  EXPECT_THAT(std::string(Convert(301, "PermanentRedirect",
                                  {{"x-amz-bucket-region", "eu-west-3"}})
                              .message()),
              HasSubstr("set AWS_REGION=eu-west-3"));
}

TEST(AnswersTest, AServersTextIsShortAndPrintable) {
  const HttpAnswer answer{
      500, {}, MakeError("A\nB", "\x1b[31m" + std::string(5000, 'x'))};
  const std::string message(ToStatus(answer, "GET url", kNow).message());
  EXPECT_LT(message.size(), 500u);
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  EXPECT_THAT(message, Not(HasSubstr("\x1b")));
}

TEST(AnswersTest, RetryAfterIsADelayOrADate) {
  const auto delay = [](const std::string& header) {
    return GetRetryDelay(Convert(503, "", {{"retry-after", header}}));
  };
  EXPECT_EQ(delay("7"), absl::Seconds(7));
  EXPECT_EQ(delay("Tue, 14 Nov 2023 22:13:50 GMT"), absl::Seconds(30));
  EXPECT_EQ(delay("Tue, 14 Nov 2022 22:13:50 GMT"), absl::ZeroDuration());
  EXPECT_EQ(delay("-7"), absl::ZeroDuration());
  EXPECT_EQ(delay("soon"), std::nullopt);
}

// --- Headers -----------------------------------------------------------------

TEST(AnswersTest, AContentRangeIsHalfOpen) {
  const auto range = ParseContentRange("bytes 5-9/20");
  ASSERT_TRUE(range.has_value());
  EXPECT_EQ(range->begin, 5);
  EXPECT_EQ(range->end, 10);
  EXPECT_EQ(range->size_bytes, 20);
  for (const char* header :
       {"", "bytes", "bytes */20", "bytes 5-9/*", "bytes 9-5/20",
        "bytes 5-20/20", "bytes -5-9/20", "bytes 5-9", "5-9/20",
        "bytes 5-9/99999999999999999999", "bytes +5-9/20"}) {
    EXPECT_EQ(ParseContentRange(header), std::nullopt) << header;
  }
}

TEST(AnswersTest, AContentLengthIsANumber) {
  EXPECT_EQ(ParseContentLength("12"), 12);
  for (const char* header : {"", "-1", "+1", "1x", "99999999999999999999"}) {
    EXPECT_EQ(ParseContentLength(header), std::nullopt) << header;
  }
}

// --- S3 ----------------------------------------------------------------------

TEST(AnswersTest, AListHasDecodedKeys) {
  const auto page = ParseListPage(kList);
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->objects.size(), 2u);
  EXPECT_EQ(page->objects[0].name, "a b+c\xC3\xA9");
  EXPECT_EQ(page->objects[0].etag, "\"e1\"");
  EXPECT_EQ(page->objects[0].size_bytes, 12);
  EXPECT_EQ(page->objects[1].name, "d");
  EXPECT_EQ(page->continuation_token, "a/b=&");
}

TEST(AnswersTest, AListWithoutEncodingKeepsItsKeys) {
  const auto page = ParseListPage(
      "<ListBucketResult><Contents><Key>a+b%20</Key><Size>1</Size></Contents>"
      "</ListBucketResult>");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->objects.at(0).name, "a+b%20");
  EXPECT_EQ(page->continuation_token, "");
}

TEST(AnswersTest, AListThatCannotGoOnIsRefused) {
  EXPECT_EQ(ParseListPage("<ListBucketResult><IsTruncated>true</IsTruncated>"
                          "</ListBucketResult>")
                .status()
                .code(),
            Code::kDataLoss);
  EXPECT_EQ(ParseListPage("<html/>").status().code(), Code::kDataLoss);
}

TEST(AnswersTest, IncompleteUploadsHaveAKeyAndAnId) {
  const auto page = ParseUploadPage(
      "<ListMultipartUploadsResult><EncodingType>url</EncodingType>"
      "<IsTruncated>true</IsTruncated><Upload><Key>a+b%2Fc</Key>"
      "<UploadId>1</UploadId></Upload></ListMultipartUploadsResult>");
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->uploads.size(), 1u);
  EXPECT_EQ(page->uploads[0].key, "a b/c");
  EXPECT_EQ(page->uploads[0].id, "1");
  EXPECT_FALSE(page->is_last);
  for (const char* text :
       {"", "<html/>",
        "<ListMultipartUploadsResult><Upload><Key>a</Key></Upload>"
        "</ListMultipartUploadsResult>"}) {
    EXPECT_EQ(ParseUploadPage(text).status().code(), Code::kDataLoss) << text;
  }
}

TEST(AnswersTest, ACompleteAnswerMayHoldAnError) {
  const auto check = [](const std::string& body) {
    return CheckCompleted({200, {}, body}, "POST url", kNow).code();
  };
  EXPECT_EQ(check("  \n<CompleteMultipartUploadResult/>"), Code::kOk);
  EXPECT_EQ(check(MakeError("InternalError", "a")), Code::kUnavailable);
  EXPECT_EQ(check(MakeError("NoSuchUpload", "a")), Code::kNotFound);
  EXPECT_EQ(check(MakeError("AccessDenied", "a")), Code::kPermissionDenied);
  EXPECT_EQ(check(MakeError("ConditionalRequestConflict", "a")),
            Code::kAborted);
  EXPECT_EQ(check(""), Code::kUnavailable);
  EXPECT_EQ(check("<CompleteMultipart"), Code::kUnavailable);
}

TEST(AnswersTest, ThePartListIsWellFormed) {
  const auto root = ParseXml(MakePartList({"\"a\"", "<b>&"}));
  ASSERT_TRUE(root.ok()) << root.status();
  ASSERT_EQ(root->children.size(), 2u);
  EXPECT_EQ(root->children[0].GetText("PartNumber"), "1");
  EXPECT_EQ(root->children[0].GetText("ETag"), "\"a\"");
  EXPECT_EQ(root->children[1].GetText("ETag"), "<b>&");
}

// --- Credentials -------------------------------------------------------------

TEST(AnswersTest, ReadsCredentialsOfStsAndOfContainers) {
  for (const auto& credentials :
       {ParseStsCredentials(kSts), ParseContainerCredentials(kContainer)}) {
    ASSERT_TRUE(credentials.ok()) << credentials.status();
    EXPECT_EQ(credentials->access_key_id, "id");
    EXPECT_EQ(credentials->secret_access_key, "secret");
    EXPECT_EQ(credentials->session_token, "token");
    EXPECT_EQ(absl::ToUnixSeconds(credentials->expire_time), 1767323045);
  }
}

TEST(AnswersTest, CredentialsThatNoHeaderCanCarryAreRefused) {
  EXPECT_FALSE(ParseContainerCredentials(
                   R"({"AccessKeyId": "i\r\nd", "SecretAccessKey": "s",
                       "Token": "t", "Expiration": "2026-01-02T03:04:05Z"})")
                   .ok());
  EXPECT_FALSE(ParseContainerCredentials(R"({"AccessKeyId": 1})").ok());
  EXPECT_FALSE(ParseContainerCredentials("[]").ok());
  EXPECT_FALSE(ParseStsCredentials("<a/>").ok());
}

// --- Any bytes ---------------------------------------------------------------

TEST(AnswersTest, ADocumentWithEntitiesOrGreatDepthIsRefused) {
  const std::string entities =
      "<!DOCTYPE a [<!ENTITY x \"xxxxxxxxxx\"><!ENTITY y \"&x;&x;&x;\">]>"
      "<a>&y;</a>";
  EXPECT_EQ(ParseXml(entities).status().code(), Code::kDataLoss);
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "<a>";
  EXPECT_EQ(ParseXml(deep).status().code(), Code::kDataLoss);
  std::string wide = "<a>";
  for (int i = 0; i < 100'001; ++i) wide += "<b/>";
  EXPECT_EQ(ParseXml(wide + "</a>").status().code(), Code::kDataLoss);
  EXPECT_EQ(ParseXml("").status().code(), Code::kDataLoss);
}

TEST(AnswersTest, AnyBytesAreParsedWithoutACrash) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  Mutator mutator(seed);
  const std::vector<std::string> seeds = {
      kList,
      kSts,
      kContainer,
      MakeError("Code", "text"),
      "bytes 5-9/20",
      "Tue, 14 Nov 2023 22:13:50 GMT",
      "<InitiateMultipartUploadResult><UploadId>a</UploadId>"
      "</InitiateMultipartUploadResult>"};
  int list_count = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string text = mutator.Changed(seeds);
    list_count += ParseListPage(text).ok();
    ParseUploadPage(text).status().IgnoreError();
    ParseUploadId(text).status().IgnoreError();
    ParseStsCredentials(text).status().IgnoreError();
    ParseContainerCredentials(text).status().IgnoreError();
    ParseContentRange(text);
    ParseContentLength(text);
    const HttpAnswer answer{503, {{"retry-after", text}, {"date", text}}, text};
    EXPECT_FALSE(ToStatus(answer, "GET url", kNow).ok());
    CheckCompleted(answer, "POST url", kNow).IgnoreError();
  }
  EXPECT_GT(list_count, 0);
}

}  // namespace
}  // namespace atl
