// A certificate authority for tests: keys and certificates made on the spot.

#ifndef BASE_RPC_TESTING_TEST_CERTIFICATES_H_
#define BASE_RPC_TESTING_TEST_CERTIFICATES_H_

#include <memory>
#include <string>

#include "base/rpc/tls.h"

namespace atl::rpc {

class TestAuthority {
 public:
  // Writes its files under `directory`, which exists.
  explicit TestAuthority(std::string directory);
  ~TestAuthority();
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;

  // A certificate for `common_name`, good for 127.0.0.1 and localhost, for an
  // hour; the files of its owner.
  TlsFiles Issue(const std::string& common_name);

 private:
  struct State;
  std::string directory_;
  std::unique_ptr<State> state_;
  int issued_count_ = 0;
};

}  // namespace atl::rpc

#endif  // BASE_RPC_TESTING_TEST_CERTIFICATES_H_
