// A certificate authority for tests that makes keys and certificates.

#pragma once

#include <memory>
#include <string>

#include "base/rpc/tls.h"

namespace atl::rpc {

class TestAuthority {
 public:
  // Writes its files under `directory`, which must exist.
  explicit TestAuthority(std::string directory);
  ~TestAuthority();
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;

  // Issues a certificate for `common_name` and the hosts 127.0.0.1 and
  // localhost, valid for an hour. Returns its owner's files.
  TlsFiles Issue(const std::string& common_name);

 private:
  struct State;
  std::string directory_;
  std::unique_ptr<State> state_;
  int issued_count_ = 0;
};

}  // namespace atl::rpc
