// A certificate authority for tests that makes keys and certificates.

#pragma once

#include <string>

#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/tls.h"

namespace atl::rpc {

// Makes an empty directory that has the name of the running test.
std::string MakeTestDirectory();

class TestAuthority {
 public:
  // Writes its files under `directory`, which must exist.
  explicit TestAuthority(std::string directory);
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;

  // Issues a certificate for `common_name` and the hosts 127.0.0.1 and
  // localhost, for both sides of a connection, valid for an hour. Returns its
  // owner's files.
  TlsFiles Issue(const std::string& common_name);
  TlsFiles Issue(const CertificateSpec& spec);

  const KeyAndCertificate& pair() const { return authority_; }

  // The contents of the certificate that the first Issue makes.
  static CertificateSpec DefaultSpec(const std::string& common_name);

 private:
  const std::string directory_;
  KeyAndCertificate authority_;
  int issued_count_ = 0;
};

// Puts the content of the files `from` in the place of the files `to`, each at
// once, as a mounted Secret does.
void ReplaceTlsFiles(const TlsFiles& from, const TlsFiles& to);

}  // namespace atl::rpc
