#include "base/object_store/object_url.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Store = ObjectUrl::Store;

TEST(ObjectUrlTest, AFileIsAnAbsoluteDecodedPath) {
  const auto url = ParseObjectUrl("file:///data/a%20b%25/%C3%A9");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->store, Store::kFile);
  EXPECT_EQ(url->path, "/data/a b%/\xC3\xA9");
}

TEST(ObjectUrlTest, AKeyIsTakenAsItIs) {
  const auto url = ParseObjectUrl("s3://my.bucket/a//b%20c?d#e/");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->store, Store::kS3);
  EXPECT_EQ(url->bucket, "my.bucket");
  EXPECT_EQ(url->path, "a//b%20c?d#e/");
  EXPECT_EQ(ParseObjectUrl("s3://bucket")->path, "");
  EXPECT_EQ(ParseObjectUrl("s3://bucket//a")->path, "/a");
}

TEST(ObjectUrlTest, AnHttpUrlKeepsItsEncoding) {
  const auto url = ParseObjectUrl("https://Example.COM:8443/a%2Fb/c?x=%3D&y");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->store, Store::kHttp);
  EXPECT_EQ(url->http.host, "example.com");
  EXPECT_EQ(url->http.path, "/a%2Fb/c");
  EXPECT_EQ(url->http.query, "x=%3D&y");
  EXPECT_EQ(url->http.authority(), "example.com:8443");
  EXPECT_EQ(url->http.origin(), "https://example.com:8443");
  EXPECT_EQ(ParseHttpUrl("https://a?b=c")->query, "b=c");
  EXPECT_EQ(ParseHttpUrl("https://a?b=c")->path, "");
}

TEST(ObjectUrlTest, TheSchemesOwnPortIsNotNamed) {
  EXPECT_EQ(ParseHttpUrl("https://a:443/b")->authority(), "a");
  EXPECT_EQ(ParseHttpUrl("https://a:80/b")->authority(), "a:80");
  EXPECT_EQ(ParseHttpUrl("http://127.0.0.1:80/b")->authority(), "127.0.0.1");
  EXPECT_EQ(ParseHttpUrl("https://[::1]/b")->authority(), "[::1]");
  EXPECT_EQ(ParseHttpUrl("http://[::1]:90/b")->authority(), "[::1]:90");
}

TEST(ObjectUrlTest, PlaintextIsForLoopbackOnly) {
  EXPECT_TRUE(ParseHttpUrl("http://127.0.0.1:1/a").ok());
  EXPECT_TRUE(ParseHttpUrl("http://localhost/a").ok());
  EXPECT_EQ(ParseHttpUrl("http://Localhost.:9/a")->origin(),
            "http://localhost:9");
  for (const char* url : {"http://example.com/a", "http://10.0.0.1/a",
                          "http://localhost.example.com/a", "http://0.0.0.0/a",
                          "http://[::2]/a"}) {
    const auto parsed = ParseHttpUrl(url);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(parsed.status().message()),
                HasSubstr("use https://"));
  }
}

TEST(ObjectUrlTest, ContainersHostsArePlaintextIfAskedFor) {
  for (const char* url :
       {"http://169.254.170.2/a", "http://[fd00:ec2::23]/a"}) {
    EXPECT_FALSE(ParseHttpUrl(url).ok()) << url;
    EXPECT_TRUE(ParseHttpUrl(url, PlaintextHosts::kContainers).ok()) << url;
    EXPECT_TRUE(ParseObjectUrl(url, PlaintextHosts::kAny).ok()) << url;
  }
  EXPECT_FALSE(
      ParseHttpUrl("http://169.254.169.254/a", PlaintextHosts::kContainers)
          .ok());
}

TEST(ObjectUrlTest, RefusesWhatIsNoUrlOfAnObject) {
  for (const char* url : {"",
                          "data",
                          "/data",
                          "ftp://a/b",
                          "file://data",
                          "file://",
                          "file:///%zz",
                          "file:///a%00b",
                          "s3://",
                          "s3:///key",
                          "s3://ab/c",
                          "s3://a b/c",
                          "s3://bucket?x/c",
                          "https://",
                          "https:///a",
                          "https://a:/b",
                          "https://a:0/b",
                          "https://a:99999/b",
                          "https://user@host/a",
                          "https://a/b#c",
                          "https://a/b c",
                          "https://a/\xC3\xA9",
                          "https://a\r\nb/",
                          "https://::1/a",
                          "HTTPS://a/b"}) {
    EXPECT_EQ(ParseObjectUrl(url).status().code(),
              absl::StatusCode::kInvalidArgument)
        << url;
  }
}

TEST(ObjectUrlTest, ErrorsRepeatNoSecret) {
  for (const char* url : {"https://me:hidden@host/a", "https://a/b?hidden#c",
                          "https://a/b#hidden", "http://h/b?c=hidden"}) {
    const absl::Status status = ParseObjectUrl(url).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("hidden"))) << url;
  }
  EXPECT_EQ(RedactUrl("https://u:p@a:1/b@c?d"), "https://a:1/b@c");
  EXPECT_EQ(RedactUrl("s3://bucket/a?b"), "s3://bucket/a?b");
}

TEST(ObjectUrlTest, JoinsNamesWithOneSlash) {
  EXPECT_EQ(JoinObjectName("a", "b"), "a/b");
  EXPECT_EQ(JoinObjectName("a/", "b"), "a/b");
  EXPECT_EQ(JoinObjectName("a/", "/b"), "a//b");
  EXPECT_EQ(JoinObjectName("", "b"), "b");
  EXPECT_EQ(JoinObjectName("a", ""), "a");
}

TEST(ObjectUrlTest, ANameStaysBelowItsDirectory) {
  for (const char* name : {"", "a", "a/b", "..a/b..", "..."}) {
    EXPECT_TRUE(CheckRelativeName(name).ok()) << name;
  }
  for (const char* name : {"/", "/a", "a/", "a//b", ".", "..", "../a", "a/..",
                           "a/./b", "a/../../b"}) {
    EXPECT_FALSE(CheckRelativeName(name).ok()) << name;
  }
  EXPECT_FALSE(CheckRelativeName(std::string("a\0b", 3)).ok());
}

TEST(ObjectUrlTest, EncodesAllButUnreservedBytes) {
  EXPECT_EQ(PercentEncode("aZ09-_.~/ +*%\xC3\xA9", true),
            "aZ09-_.~/%20%2B%2A%25%C3%A9");
  EXPECT_EQ(PercentEncode("a/b", false), "a%2Fb");
}

TEST(ObjectUrlTest, QueriesAreSortedByEncodedNameThenValue) {
  EXPECT_EQ(EncodeQuery({}), "");
  EXPECT_EQ(EncodeQuery({{"uploads", ""}}), "uploads=");
  EXPECT_EQ(EncodeQuery({{"b", "2"}, {"a-b", "x"}, {"a", "z"}, {"a", "/"}}),
            "a=%2F&a=z&a-b=x&b=2");
}

}  // namespace
}  // namespace atl
