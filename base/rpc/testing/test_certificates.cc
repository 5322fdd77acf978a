#include "base/rpc/testing/test_certificates.h"

#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status/check.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  CHECK(file.flush().good()) << "cannot write " << path;
}

void ReplaceFile(const std::string& from, const std::string& to) {
  std::filesystem::copy_file(from, to + ".new");
  std::filesystem::rename(to + ".new", to);
}

}  // namespace

std::string MakeTestDirectory() {
  const std::string path = absl::StrCat(
      ::testing::TempDir(), "/",
      ::testing::UnitTest::GetInstance()->current_test_info()->name());
  std::filesystem::remove_all(path);  // Of an earlier run.
  std::filesystem::create_directories(path);
  return path;
}

TestAuthority::TestAuthority(std::string directory)
    : directory_(std::move(directory)) {
  const absl::Time now = absl::Now();
  auto made = MakeAuthority("test authority", now - absl::Minutes(1),
                            now + absl::Hours(1));
  CHECK(made.ok()) << made.status();
  authority_ = *std::move(made);
  WriteFile(directory_ + "/ca.pem", authority_.cert_pem);
}

CertificateSpec TestAuthority::DefaultSpec(const std::string& common_name) {
  const absl::Time now = absl::Now();
  return {.common_name = common_name,
          .hosts = {"localhost", "127.0.0.1"},
          .server_auth = true,
          .client_auth = true,
          .begin = now - absl::Minutes(1),
          .end = now + absl::Hours(1)};
}

TlsFiles TestAuthority::Issue(const std::string& common_name) {
  return Issue(DefaultSpec(common_name));
}

TlsFiles TestAuthority::Issue(const CertificateSpec& spec) {
  const auto made = IssueCertificate(authority_, spec);
  CHECK(made.ok()) << made.status();
  const std::string stem = absl::StrCat(directory_, "/", ++issued_count_);
  TlsFiles files{stem + ".cert.pem", stem + ".key.pem", directory_ + "/ca.pem"};
  WriteFile(files.cert, made->cert_pem);
  WriteFile(files.key, made->key_pem);
  return files;
}

void ReplaceTlsFiles(const TlsFiles& from, const TlsFiles& to) {
  ReplaceFile(from.cert, to.cert);
  ReplaceFile(from.key, to.key);
}

}  // namespace atl::rpc
