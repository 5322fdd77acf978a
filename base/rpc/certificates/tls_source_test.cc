#include "base/rpc/certificates/tls_source.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/obs/log.h"
#include "base/rpc/testing/test_certificates.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

class Lines : public LogSink {
 public:
  Lines() { SetLogSink(this); }
  ~Lines() override { SetLogSink(nullptr); }
  void Send(LogSeverity, absl::string_view, absl::string_view text) override {
    lines.emplace_back(text);
  }
  std::vector<std::string> lines;
};

class TlsSourceTest : public ::testing::Test {
 protected:
  TlsSourceTest()
      : authority_(MakeTestDirectory()), files_(authority_.Issue("atoll:server:a")) {}

  std::unique_ptr<TlsSource> Open() {
    auto source = TlsSource::Open(files_, KeyUse::kServer, "the listener");
    EXPECT_TRUE(source.ok()) << source.status();
    return *std::move(source);
  }

  static std::string NameIn(const TlsMaterial& material) {
    return ReadCommonName(material.cert_pem).value();
  }

  TestAuthority authority_;
  const TlsFiles files_;
};

TEST_F(TlsSourceTest, ReturnsTheSameContentUntilAFileChanges) {
  const auto source = Open();
  const auto first = source->Get();
  EXPECT_EQ(source->Get(), first);
  ReplaceTlsFiles(authority_.Issue("atoll:server:b"), files_);
  EXPECT_EQ(NameIn(*source->Get()), "atoll:server:b");
  EXPECT_EQ(NameIn(*first), "atoll:server:a");
}

TEST_F(TlsSourceTest, KeepsTheOldPairUntilBothHalvesOfTheNewOneAreThere) {
  const auto source = Open();
  const TlsFiles next = authority_.Issue("atoll:server:b");
  Lines log;
  std::filesystem::copy_file(next.cert, files_.cert,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(NameIn(*source->Get()), "atoll:server:a");
  EXPECT_EQ(NameIn(*source->Get()), "atoll:server:a");
  ASSERT_EQ(log.lines.size(), 1u);  // Once, not at every look.
  EXPECT_TRUE(absl::StrContains(log.lines[0],
                                "the listener keeps its old certificate"));
  EXPECT_TRUE(absl::StrContains(log.lines[0], "--tls-key")) << log.lines[0];
  std::filesystem::copy_file(next.key, files_.key,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(NameIn(*source->Get()), "atoll:server:b");
}

TEST_F(TlsSourceTest, KeepsTheOldContentIfAFileIsGoneOrUnfit) {
  const auto source = Open();
  std::filesystem::rename(files_.key, files_.key + ".away");
  EXPECT_EQ(NameIn(*source->Get()), "atoll:server:a");
  std::filesystem::rename(files_.key + ".away", files_.key);
  EXPECT_EQ(NameIn(*source->Get()), "atoll:server:a");
  CertificateSpec caller = TestAuthority::DefaultSpec("atoll:island:x");
  caller.server_auth = false;
  ReplaceTlsFiles(authority_.Issue(caller), files_);
  EXPECT_EQ(NameIn(*source->Get()), "atoll:server:a");
  ReplaceTlsFiles(authority_.Issue("atoll:server:b"), files_);
  std::ofstream(files_.ca) << "-----BEGIN nothing";
  EXPECT_EQ(NameIn(*source->Get()), "atoll:server:a");
}

TEST_F(TlsSourceTest, ReadsTheListOfRevokedCertificatesOfItsDirectory) {
  const std::string directory =
      std::filesystem::path(files_.cert).parent_path() / "dir";
  TlsFiles files;
  UseTlsDirectory(directory, files);
  std::filesystem::create_directories(directory);
  for (const auto& [from, to] : {std::pair(files_.cert, files.cert),
                                 std::pair(files_.key, files.key),
                                 std::pair(files_.ca, files.ca)}) {
    std::filesystem::copy_file(
        from, to, std::filesystem::copy_options::overwrite_existing);
  }
  std::filesystem::remove(directory + "/crl.pem");
  const auto source =
      TlsSource::Open(files, KeyUse::kServer, "the listener").value();
  EXPECT_EQ(source->Get()->crl_pem, "");
  const std::string list =
      MakeRevocationList(authority_.pair(), {{"0f", absl::Now()}}, absl::Now())
          .value();
  std::ofstream(directory + "/crl.pem") << list;
  EXPECT_EQ(source->Get()->crl_pem, list);
  // Another CA's list counts for nothing.
  TestAuthority other(::testing::TempDir());
  std::ofstream(directory + "/crl.pem")
      << MakeRevocationList(other.pair(), {}, absl::Now()).value();
  Lines log;
  EXPECT_EQ(source->Get()->crl_pem, list);
  ASSERT_EQ(log.lines.size(), 1u);
  EXPECT_TRUE(absl::StrContains(log.lines[0], "crl.pem")) << log.lines[0];
  // Nobody is admitted again because a file is lost.
  std::filesystem::remove(directory + "/crl.pem");
  EXPECT_EQ(source->Get()->crl_pem, list);
  EXPECT_EQ(log.lines.size(), 2u);
}

TEST_F(TlsSourceTest, UsesACertificateOnceItIsValid) {
  absl::Time now = absl::Now();
  const auto source = TlsSource::Open(files_, KeyUse::kServer, "the listener",
                                      [&now] { return now; })
                          .value();
  CertificateSpec next = TestAuthority::DefaultSpec("atoll:server:b");
  next.begin = now + absl::Minutes(2);
  ReplaceTlsFiles(authority_.Issue(next), files_);
  Lines log;
  EXPECT_EQ(NameIn(*source->Get()), "atoll:server:a");
  now += absl::Minutes(1);
  EXPECT_EQ(NameIn(*source->Get()), "atoll:server:a");
  EXPECT_EQ(log.lines.size(), 1u);  // The warning is not repeated.
  now += absl::Minutes(2);
  EXPECT_EQ(NameIn(*source->Get()), "atoll:server:b");
}

TEST_F(TlsSourceTest, SaysAtTheStartThatACertificateMayNotServe) {
  CertificateSpec caller = TestAuthority::DefaultSpec("atoll:island:x");
  caller.server_auth = false;
  const absl::Status status =
      TlsSource::Open(authority_.Issue(caller), KeyUse::kServer, "x").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  for (const char* word : {"--tls-cert", "serverAuth"}) {
    EXPECT_TRUE(absl::StrContains(status.message(), word)) << status;
  }
}

}  // namespace
}  // namespace atl::rpc
