#include "base/rpc/certificates/tls.h"

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/testing/test_certificates.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

TEST(TlsTest, WantsAllThreeFilesOrNone) {
  EXPECT_TRUE(CheckTlsFiles({}).ok());
  EXPECT_TRUE(CheckTlsFiles({"c", "k", "a"}).ok());
  const absl::Status status = CheckTlsFiles({"c", "", ""});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(
      absl::StrContains(status.message(), "--tls-key, --tls-ca are missing"))
      << status;
}

TEST(TlsTest, ADirectoryStandsForTheFilesThatAreNotNamed) {
  TlsFiles files{.key = "elsewhere.key"};
  UseTlsDirectory("d", files);
  EXPECT_EQ(files.cert, "d/tls.crt");
  EXPECT_EQ(files.key, "elsewhere.key");
  EXPECT_EQ(files.ca, "d/ca.crt");
  EXPECT_EQ(IslandCaPath(files), "d/island-ca.crt");
  EXPECT_EQ(RevocationListPath(files), "d/crl.pem");
  EXPECT_EQ(IslandCaPath({"c", "k", "a"}), "");
  UseTlsDirectory("/nowhere", files = {});
  const absl::Status status = ReadTlsFiles(files).status();
  EXPECT_TRUE(absl::StrContains(status.message(),
                                "--tls-dir: cannot open \"/nowhere/tls.crt"))
      << status;
}

TEST(TlsTest, FindsTheCasThatMaySignCas) {
  const absl::Time now = absl::Now();
  const auto root =
      MakeAuthority("root", now, now + absl::Hours(1), 1).value();
  const auto lower =
      IssueAuthority(root, {.common_name = "lower", .begin = now, .end = now})
          .value();
  EXPECT_TRUE(FindUpperAuthorities(lower.cert_pem).empty());
  EXPECT_EQ(FindUpperAuthorities(lower.cert_pem + root.cert_pem),
            std::vector<std::string>{"root"});
}

TEST(TlsTest, NamesTheFlagOfAFileThatCannotBeRead) {
  const absl::Status status =
      ReadTlsFiles({"/nowhere/cert.pem", "/nowhere/key.pem", "/nowhere/ca.pem"})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(absl::StrContains(status.message(), "--tls-cert"));
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

TEST(TlsTest, RefusesAKeyThatIsNotTheCertificates) {
  TestAuthority authority(::testing::TempDir());
  TlsFiles files = authority.Issue("atoll:island:kitchen");
  files.key = authority.Issue("atoll:island:garage").key;
  const absl::Status status = ReadTlsFiles(files).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "--tls-key: ")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "is not the key of"))
      << status;
  files.key = files.cert;
  EXPECT_TRUE(absl::StrContains(ReadTlsFiles(files).status().message(),
                                "holds no private key"));
}

TEST(TlsTest, ReadsWhomACertificateNames) {
  TestAuthority authority(::testing::TempDir());
  const std::string pem =
      ReadAll(authority.Issue("atoll:island:kitchen").cert);
  EXPECT_EQ(ReadCommonName(pem).value(), "atoll:island:kitchen");
  EXPECT_EQ(ReadCommonName("hello").status().code(),
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
