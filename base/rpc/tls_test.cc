#include "base/rpc/tls.h"

#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/rpc/test_certificates.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

TEST(TlsTest, ReadsHostAndPort) {
  const auto v4 = ParseHostPort("127.0.0.1:7070");
  ASSERT_TRUE(v4.ok());
  EXPECT_EQ(v4->host, "127.0.0.1");
  EXPECT_EQ(v4->port, 7070);
  const auto v6 = ParseHostPort("[::1]:0");
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(ParseHostPort("coordinator.example:65535")->port, 65535);
}

TEST(TlsTest, RefusesWhatIsNoAddress) {
  for (const char* bad :
       {"", ":", "host", "host:", ":1", "host:x", "host:-1", "host:65536",
        "host:+1", "host:1x", "a:b:1", "[::1:1", "[]:1", "ho st:1", "/x:1",
        "unix:/x", "host:99999999999"}) {
    EXPECT_EQ(ParseHostPort(bad).status().code(),
              absl::StatusCode::kInvalidArgument)
        << bad;
  }
}

TEST(TlsTest, KnowsWhatStaysOnTheMachine) {
  for (const char* host : {"localhost", "127.0.0.1", "127.1.2.3", "::1"}) {
    EXPECT_TRUE(IsLoopbackHost(host)) << host;
  }
  for (const char* host :
       {"", "0.0.0.0", "::", "10.0.0.1", "127.0.0", "127.0.0.1.example",
        "1270.0.0.1", "127.0.0.256", "localhost.example", "127.0.0.1 "}) {
    EXPECT_FALSE(IsLoopbackHost(host)) << host;
  }
}

TEST(TlsTest, WantsAllThreeFilesOrNone) {
  EXPECT_TRUE(CheckTlsFiles({}).ok());
  EXPECT_TRUE(CheckTlsFiles({"c", "k", "a"}).ok());
  const absl::Status status = CheckTlsFiles({"c", "", ""});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(
      absl::StrContains(status.message(), "--tls_key, --tls_ca is missing"))
      << status;
}

TEST(TlsTest, NamesTheFlagOfAFileThatCannotBeRead) {
  const absl::Status status =
      ReadTlsFiles({"/nowhere/cert.pem", "/nowhere/key.pem", "/nowhere/ca.pem"})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(absl::StrContains(status.message(), "--tls_cert"));
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(TlsTest, KnowsFromWhenToWhenACertificateIsValid) {
  TestAuthority authority(::testing::TempDir());
  const TlsFiles files = authority.Issue("atoll:reader:a");
  EXPECT_TRUE(ReadTlsFiles(files).ok());
  const std::string pem = ReadAll(files.cert);
  const absl::Time now = absl::Now();
  EXPECT_TRUE(CheckValidity(pem, now).ok());
  const absl::Status late = CheckValidity(pem, now + absl::Hours(2));
  EXPECT_EQ(late.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_TRUE(absl::StrContains(late.message(), "expired at ")) << late;
  const absl::Status early = CheckValidity(pem, now - absl::Hours(2));
  EXPECT_EQ(early.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_TRUE(absl::StrContains(early.message(), "valid from ")) << early;
  EXPECT_EQ(CheckValidity(ReadAll(files.key), now).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TlsTest, RefusesAFileThatIsNoPem) {
  const std::string path = ::testing::TempDir() + "/not.pem";
  std::ofstream(path) << "hello";
  EXPECT_EQ(ReadTlsFiles({path, path, path}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace atl::rpc
